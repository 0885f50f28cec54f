"""The client of a service: what the command line and Python programs use.

An example:

    from kintune.service.client import Client

    with Client("http://127.0.0.1:8190", token="kt_...") as client:
        model = client.upload("resnet18.onnx")
        job = client.submit(model["id"], until=8)
        job = client.wait(job["id"], on_news=print)
        client.download(job["id"], "resnet18.kt")

What the methods return are the JSON documents of the API.  Times in them are in seconds since 1970, latencies in
milliseconds, sizes in bytes.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from email.message import Message
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar

import httpx

from kintune.core.failure_report import remove_report
from kintune.errors import InputError, JobFailed, StorageError
from kintune.files import check_readable, check_writable, expanded, move_into_place, readable_files, sha256_of
from kintune.service.client_connection import (
    PATIENT,
    SERVICE_VARIABLE,
    TIMEOUT,
    TOKEN_VARIABLE,
    ServiceConnection,
    ServiceError,
)

__all__ = ["SERVICE_VARIABLE", "TOKEN_VARIABLE", "Client", "ServiceError"]

_CHUNK = 1 << 20
_ID = re.compile(r"[\w-]{1,64}", re.ASCII)
_OVER = ("done", "failed", "cancelled")
_NOT_THERE = (404, 405)  # the service has no such file of the user; an older one does not know the request


class Client:
    """Talks to one service; a context manager, which closes its connections.

    Requests other than downloads are tried four times while the service does not answer, with pauses of at least half a
    second.  A submission carries an idempotency key, so that trying again makes one job.
    Uploads and exports are waited for up to ten minutes, since the service inspects or makes them before it answers.
    """

    headers: ClassVar[Mapping[str, str]] = {}
    """What is sent with every request."""

    def __init__(
        self, address: str | None = None, token: str | None = None, transport: httpx.BaseTransport | None = None
    ) -> None:
        """Opens no connection yet.

        Args:
            address: `http://HOST:PORT` or `https://HOST`; None takes it from $KINTUNE_SERVICE, else port
                8190 of this machine.
            token: None takes it from $KINTUNE_TOKEN; without either, none is sent.
            transport: replaces the network, for tests.

        Raises:
            InputError: the address or the token cannot be one.
        """
        self._connection = ServiceConnection(address, token, transport, self.headers)
        self.address = self._connection.address

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def user(self) -> dict[str, Any]:
        """Returns who the token is of: `name`, `scope`, `quota`, and what is `used` of it.

        Raises:
            InputError: the service refuses the request.
            ServiceError: the service does not answer, or fails.
        """
        answer: dict[str, Any] = self._connection.ask("GET", "/api/v1/me")
        return answer

    def upload(self, path: str | os.PathLike[str], name: str | None = None) -> dict[str, Any]:
        """Uploads an ONNX file; returns the model: `id`, `name`, `size` in bytes, `findings` and more.

        `name` is what the model is called; None takes the file's name.  A file that the user has there already is not
        sent again: the model gets the new name, and is kept as long as a new one.

        Raises:
            InputError: the file cannot be read, or the service finds that it cannot be tuned.
            ServiceError: the service does not answer, or fails.
        """
        file = check_readable(path, "the model")
        model: dict[str, Any] = self._upload("/api/v1/models", name or file.name, file)
        if (model["findings"] or {}).get("problem"):
            raise InputError(f"{path}: {model['findings']['problem']}")
        return model

    def upload_inputs(self, path: str | os.PathLike[str], model: int | None = None) -> list[dict[str, Any]]:
        """Uploads an `.npz` file with a set of inputs, or those in a directory; returns them: `id`, `arrays` and more.

        Their ids are for `calibrate` or `inputs` of a job.  Files that the user has there already are not sent again.
        Where the id of a `model` is given, what it does not take is refused, and not kept.

        Raises:
            InputError: a file cannot be read, or the service finds that it holds no inputs, or none of the model.
            ServiceError: the service does not answer, or fails.
        """
        files = readable_files(path, ".npz", "the inputs")
        return [self._upload("/api/v1/inputs", file.name, file, model) for file in files]

    def submit(self, model: int, **wanted: Any) -> dict[str, Any]:
        """Submits a job for an uploaded model; returns the job.

        `wanted` are the fields of `JobRequest`: `until` (8 for milliseconds, or `"onnxruntime*0.8"`), `minutes`,
        `trials`, `device` and so on.  Those that are None count as not given.

        Raises:
            InputError: the service refuses the request.
            ServiceError: the service does not answer, or fails.
        """
        body = {"model": model, "wanted": {name: value for name, value in wanted.items() if value is not None}}
        answer: dict[str, Any] = self._connection.ask(
            "POST", "/api/v1/jobs", json=body, headers={"Idempotency-Key": secrets.token_hex(16)}
        )
        return answer

    def jobs(self, limit: int = 50, **parameters: Any) -> list[dict[str, Any]]:
        """Returns the user's latest jobs, at most `limit`, newest first, without their steps.

        `parameters` are those of `GET /api/v1/jobs`: `state`, `text`, `device`, `model`, `everybody`, `after`.

        Raises:
            InputError: the service refuses the request.
            ServiceError: the service does not answer, or fails.
        """
        return self._connection.pages("/api/v1/jobs", "jobs", limit, parameters)

    def models(self, limit: int = 50) -> list[dict[str, Any]]:
        """Returns the user's latest models, at most `limit`, newest first.

        Raises:
            InputError: the service refuses the request.
            ServiceError: the service does not answer, or fails.
        """
        return self._connection.pages("/api/v1/models", "models", limit)

    def inputs(self, limit: int = 50) -> list[dict[str, Any]]:
        """Returns the user's latest sets of inputs, at most `limit`, newest first.

        Raises:
            InputError: the service refuses the request.
            ServiceError: the service does not answer, or fails.
        """
        return self._connection.pages("/api/v1/inputs", "inputs", limit)

    def delete_model(self, model: int) -> None:
        """Deletes an uploaded model; the results of its jobs stay.

        Raises:
            InputError: there is no such model, or a job that is not over needs it.
            ServiceError: the service does not answer, or fails.
        """
        self._connection.ask("DELETE", f"/api/v1/models/{int(model)}")

    def delete_inputs(self, inputs: int) -> None:
        """Deletes an uploaded set of inputs.

        Raises:
            InputError: there is no such set, or a job that is not over needs it.
            ServiceError: the service does not answer, or fails.
        """
        self._connection.ask("DELETE", f"/api/v1/inputs/{int(inputs)}")

    def job(self, job: str) -> dict[str, Any]:
        """Returns one job, with its steps.

        Raises:
            InputError: the service refuses the request.
            ServiceError: the service does not answer, or fails.
        """
        answer: dict[str, Any] = self._connection.ask("GET", _path(job))
        return answer

    def cancel(self, job: str) -> dict[str, Any]:
        """Ends a job without a result; returns the job as it is now.

        Raises:
            InputError: the service refuses the request.
            ServiceError: the service does not answer, or fails.
        """
        return self._command(job, "cancel", done_in=_OVER)

    def finish(self, job: str) -> dict[str, Any]:
        """Ends a job with the best that was found so far; returns the job as it is now, before that has happened.

        Raises:
            InputError: the service refuses the request.
            ServiceError: the service does not answer, or fails.
        """
        return self._command(job, "finish", done_in=("packaging", *_OVER))

    def prioritize(self, job: str, priority: float) -> dict[str, Any]:
        """Gives a job another `priority`, up to 100; returns the job as it is now, before that has happened.

        Raises:
            InputError: the service refuses the request.
            ServiceError: the service does not answer, or fails.
        """
        return self._command(job, "priority", {"priority": priority})

    def retry(self, job: str) -> dict[str, Any]:
        """Goes on with a job that failed or was cancelled; returns the new job that does so.

        Raises:
            InputError: the service refuses the request.
            ServiceError: the service does not answer, or fails.
        """
        return self._command(job, "retry")

    def delete_files(self, *jobs: str) -> None:
        """Deletes the executables and the logs of jobs that have ended; their reports stay.

        Where some are refused, those of all others are deleted before the error names the refused jobs.

        Raises:
            InputError: there is no such job, or it has not ended.
            ServiceError: the service does not answer, or fails.
        """
        refused = []
        for job in dict.fromkeys(jobs):
            try:
                self._connection.ask("DELETE", _path(job, "files"))
            except InputError as error:
                refused.append(str(error) if job in str(error) else f"job {job}: {error}")
        if refused:
            raise InputError("; ".join(refused))

    def report(self, job: str) -> dict[str, Any]:
        """Returns the report of a job that is done: the document of `kintune tune --json`.

        Raises:
            InputError: the service refuses the request.
            ServiceError: the service does not answer, or fails.
        """
        answer: dict[str, Any] = self._connection.ask("GET", _path(job, "report"))
        return answer

    def download(self, job: str, path: str | os.PathLike[str], what: str = "executable") -> Path:
        """Writes a job's `executable` or `log` to a file, whole or not at all; returns the file's path.

        In a directory it has the name that the service gives it.  `what` may also be `export/wheel`, or `export/onnx`
        or `export/c` for a zip of what `kintune export` writes.  A report beside an earlier executable is removed.

        Raises:
            StorageError: the file cannot be written.
            InputError: the service refuses the request, or the file cannot be written there.
            ServiceError: the service does not answer, or breaks off; or what answers is no service.
        """
        asked, folder, is_made = _path(job, what), expanded(path), what.startswith("export/")
        target = check_writable(folder / job if os.path.isdir(folder) else path, "the output")
        part = target.with_name(f".{target.name}.part")
        try:
            media_type = "text/plain" if what == "log" else "application/octet-stream"
            with self._connection.receiving(asked, media_type, PATIENT if is_made else TIMEOUT) as response:
                target = target.with_name(_file_name(response) or job) if os.path.isdir(folder) else target
                with part.open("wb") as file:
                    for chunk in response.iter_bytes(_CHUNK):
                        file.write(chunk)
            move_into_place(part, target)
            if what == "executable":
                remove_report(target)
        except OSError as error:
            raise StorageError(f"{path}: cannot be written ({error.strerror})") from error
        finally:
            part.unlink(missing_ok=True)
        return target

    def watch(self, job: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yields a job's events as they come, as (kind, data), until the job is over.

        The first and the last are of kind `job`, whose data is the whole job.  A connection that breaks is opened again
        after a second.

        Raises:
            InputError: the service refuses the request.
            ServiceError: the service cannot be reached to begin with, or fails.
        """
        reached = False
        while True:
            try:
                for kind, data in self._connection.events(_path(job, "events")):
                    reached = True
                    yield kind, data
                    if kind == "job" and data["state"] in _OVER:
                        return
            except httpx.TransportError:
                if not reached:
                    self.job(job)
            time.sleep(1.0)

    def wait(self, job: str, on_news: Callable[[str, Mapping[str, Any]], None] | None = None) -> dict[str, Any]:
        """Waits until a job is over, without a limit; returns the job.

        `on_news` is called with the kind and the data of each event.

        Raises:
            JobFailed: the job has failed or was cancelled.
            InputError: the service refuses the request.
            ServiceError: the service does not answer, or fails.
        """
        last: dict[str, Any] = {}
        for kind, data in self.watch(job):
            if on_news is not None:
                on_news(kind, data)
            last = data
        if last.get("state") != "done":
            raise JobFailed(f"job {job} is {last.get('state')}: {last.get('reason') or 'no reason is known'}")
        return last

    def _upload(self, path: str, name: str, file: Path, model: int | None = None) -> Any:
        """Uploads a file, without sending it if the user has it there; returns what the service says of it."""
        with file.open("rb") as opened:
            digest = sha256_of(opened).hex()
        named: dict[str, str | int] = {"name": name} if model is None else {"name": name, "model": model}
        known = self._connection.ask(
            "PUT", f"{path}/sha256/{digest}", none_for=_NOT_THERE, params=named, timeout=PATIENT
        )
        return known or self._connection.send_file(path, file, params=named)

    def _command(
        self, job: str, command: str, body: dict[str, Any] | None = None, done_in: Collection[str] = ()
    ) -> dict[str, Any]:
        """Sends a command to a job; returns the job that the service answers with.

        Where an answer was lost, a job that is then in one of the states `done_in` has carried the command out.
        """

        def job_if_done() -> dict[str, Any] | None:
            found = self.job(job)
            return found if found["state"] in done_in else None

        answer: dict[str, Any] = self._connection.ask("POST", _path(job, command), job_if_done, json=body)
        return answer


def _path(job: str, what: str = "") -> str:
    """The path of a job, or of a part of it.

    Raises:
        InputError: this is no id of a job.
    """
    if not _ID.fullmatch(job):
        raise InputError(f"{job!r} is no id of a job; `kintune jobs` lists yours")
    return f"/api/v1/jobs/{job}/{what}" if what else f"/api/v1/jobs/{job}"


def _file_name(response: httpx.Response) -> str:
    """The name that the service gives a file; empty where it gives none."""
    about = Message()
    about["Content-Disposition"] = response.headers.get("content-disposition", "")
    return Path(about.get_filename() or "").name.lstrip(".")
