from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import uvicorn

from kintune.errors import InputError, JobFailed
from kintune.service.client import Client, ServiceError
from kintune.service.job_status import JobCommand, JobStatus
from kintune.service.orchestrator.events import Changed, EventBus
from kintune.service.settings import ServiceSettings
from kintune.service.web.app import make_app
from kintune.service.web.application_state import ApplicationState
from tests.support.service_users import dynamic_onnx


class Server:
    """The web part in a thread, and the orchestrator's end of its line."""

    def __init__(self, place: Path) -> None:
        data = place / "data"
        data.mkdir()
        self.application = ApplicationState(ServiceSettings(data=str(data)))
        self.poked = threading.Event()
        self.bus = EventBus(self.application.settings.socket, self.poked.set)
        config = uvicorn.Config(make_app(self.application), port=0, log_config=None, timeout_graceful_shutdown=2)
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run)
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)
        port = self.server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"

    def close(self) -> None:
        self.server.should_exit = True
        self.thread.join()
        self.bus.close()
        self.application.__exit__(None, None, None)

    def step(self, job: str, state: JobStatus, reason: str = "", **files: str) -> None:
        self.application.jobs.step(job, state, reason, time.time(), **files)
        self.bus.publish(Changed(job, state, reason))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path)
    yield made
    made.close()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "net.onnx"
    path.write_bytes(dynamic_onnx().SerializeToString())
    return path


class LosesAnswers(httpx.BaseTransport):
    """Passes every request on, and loses the answer to the first POST of each path."""

    def __init__(self) -> None:
        self.inner = httpx.HTTPTransport()
        self.lost: set[str] = set()

    def close(self) -> None:
        self.inner.close()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = self.inner.handle_request(request)
        if request.method == "POST" and request.url.path not in self.lost:
            self.lost.add(request.url.path)
            answer.read()
            raise httpx.ReadError("the line broke")
        return answer


def test_what_is_asked_twice_for_lost_answers_is_done_once(server: Server, model: Path) -> None:
    with Client(server.url, transport=LosesAnswers()) as client:
        job = client.submit(client.upload(model)["id"], shapes={"x": [1, 4]})
        assert [one["id"] for one in client.jobs()] == [job["id"]]
        server.step(job["id"], JobStatus.FAILED, "broke")
        again = client.retry(job["id"])
        assert {one["id"] for one in client.jobs()} == {job["id"], again["id"]}


class EndsJobs(LosesAnswers):
    """Loses answers, and brings the job into a state before the second try."""

    def __init__(self, server: Server, state: JobStatus) -> None:
        super().__init__()
        self.server, self.state = server, state

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        try:
            return super().handle_request(request)
        except httpx.ReadError:
            *_, job, command = request.url.path.split("/")
            if command in ("cancel", "finish"):
                self.server.step(job, self.state)
            raise


@pytest.mark.parametrize(
    ("command", "state"),
    [("cancel", JobStatus.CANCELLED), ("finish", JobStatus.PACKAGING), ("finish", JobStatus.DONE)],
)
def test_a_command_whose_answer_is_lost_was_carried_out(
    server: Server, model: Path, command: str, state: JobStatus
) -> None:
    with Client(server.url, transport=EndsJobs(server, state)) as client:
        job = client.submit(client.upload(model)["id"], shapes={"x": [1, 4]})["id"]
        for before in (JobStatus.CHECKING, JobStatus.TUNING):
            server.step(job, before)
        assert getattr(client, command)(job)["state"] == state.value
        with pytest.raises(InputError, match="there is nothing to"):
            getattr(client, command)(job)


def test_a_command_that_was_refused_is_refused_after_a_lost_answer(server: Server, model: Path) -> None:
    with Client(server.url, transport=LosesAnswers()) as client:
        job = client.submit(client.upload(model)["id"], shapes={"x": [1, 4]})["id"]
        with pytest.raises(InputError, match="is queued: there is nothing to finish"):
            client.finish(job)


def test_an_upload_is_waited_for_as_long_as_it_is_inspected(model: Path, tmp_path: Path) -> None:
    (tmp_path / "one.npz").write_bytes(b"arrays")
    waits: dict[str, float] = {}

    def answer(request: httpx.Request) -> httpx.Response:
        waits[f"{request.method} {request.url.path.rpartition('/sha256/')[0] or request.url.path}"] = (
            request.extensions["timeout"]["read"]
        )
        return httpx.Response(404 if request.method == "PUT" else 200, json={"findings": None, "jobs": []})

    with Client("http://service", transport=httpx.MockTransport(answer)) as client:
        client.upload(model)
        client.upload_inputs(tmp_path / "one.npz")
        client.jobs()
    assert waits == {
        "PUT /api/v1/models": 600.0,  # a model that had a problem is inspected again
        "POST /api/v1/models": 600.0,
        "PUT /api/v1/inputs": 600.0,
        "POST /api/v1/inputs": 600.0,
        "GET /api/v1/jobs": 60.0,
    }


class Remembers(httpx.HTTPTransport):
    """Passes every request on, and keeps the method, the path up to a digest, and the body."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[tuple[str, str, bytes]] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        data = request.read()
        self.requests.append((request.method, request.url.path.rpartition("/sha256/")[0] or request.url.path, data))
        return super().handle_request(request)


def test_a_file_that_is_uploaded_already_is_not_sent_again(server: Server, model: Path) -> None:
    data, transport = model.read_bytes(), Remembers()
    with Client(server.url, transport=transport) as client:
        first = client.upload(model)
        assert transport.requests == [("PUT", "/api/v1/models", b""), ("POST", "/api/v1/models", data)]
        transport.requests.clear()
        assert client.upload(model, "again")["id"] == first["id"]
        assert transport.requests == [("PUT", "/api/v1/models", b"")]
        assert [each["name"] for each in client.models()] == ["again"]
        client.delete_model(first["id"])
        transport.requests.clear()
        assert client.upload(model)["id"] == first["id"]
        assert transport.requests == [("PUT", "/api/v1/models", b""), ("POST", "/api/v1/models", data)]


def test_a_set_of_inputs_that_is_uploaded_already_is_not_sent_again(server: Server, tmp_path: Path) -> None:
    for name in ("first", "second"):
        np.savez(tmp_path / f"{name}.npz", x=np.zeros((1, 4), np.float32))
    data = (tmp_path / "first.npz").read_bytes()
    (tmp_path / "second.npz").write_bytes(data)
    transport = Remembers()
    with Client(server.url, transport=transport) as client:
        first, second = client.upload_inputs(tmp_path)
        assert (first["id"], second["name"], second["arrays"]) == (second["id"], "second", first["arrays"])
    assert transport.requests == [
        ("PUT", "/api/v1/inputs", b""), ("POST", "/api/v1/inputs", data), ("PUT", "/api/v1/inputs", b""),
    ]  # fmt: skip


def test_a_model_that_cannot_be_used_is_refused_without_sending_it_again(server: Server, tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"nonsense")
    transport = Remembers()
    with Client(server.url, transport=transport) as client:
        for _ in range(2):
            with pytest.raises(InputError, match=r"broken\.onnx: it is no ONNX file"):
                client.upload(tmp_path / "broken.onnx")
    assert [method for method, _, _ in transport.requests] == ["PUT", "POST", "PUT"]


@pytest.mark.parametrize("status", [404, 405])
def test_an_older_service_is_sent_every_file(model: Path, status: int) -> None:
    sent: list[bytes] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "PUT":
            return httpx.Response(status, html="<p>Not found</p>")
        sent.append(request.read())
        return httpx.Response(201, json={"id": 5, "findings": {"problem": ""}})

    with Client("http://service", transport=httpx.MockTransport(answer)) as client:
        for _ in range(2):
            assert client.upload(model)["id"] == 5
    assert sent == [model.read_bytes()] * 2


def test_a_job_is_finished_and_given_another_priority(server: Server, model: Path) -> None:
    with Client(server.url) as client:
        job = client.submit(client.upload(model)["id"], shapes={"x": [1, 4]})["id"]
        server.step(job, JobStatus.CHECKING, "because")
        server.step(job, JobStatus.TUNING, "because")
        assert client.prioritize(job, 2.5)["id"] == client.finish(job)["id"] == job
        asked = server.application.jobs.pending_commands()
        assert [(each.command, each.value) for each in asked] == [
            (JobCommand.PRIORITY, 2.5),
            (JobCommand.FINISH, None),
        ]
        with pytest.raises(InputError):
            client.prioritize(job, 0.0)


def test_submitting_pokes_the_orchestrator(server: Server, model: Path) -> None:
    assert server.poked.wait(10)  # whoever answers is poked once
    server.poked.clear()
    with Client(server.url) as client:
        client.submit(client.upload(model)["id"], shapes={"x": [1, 4]})
    assert server.poked.wait(10)


def test_waiting_shows_how_it_goes_and_answers_with_the_job(server: Server, model: Path) -> None:
    with Client(server.url) as client:
        job = client.submit(client.upload(model)["id"], shapes={"x": [1, 4]})["id"]
        heard: list[str] = []

        def on_news(kind: str, data: dict[str, object]) -> None:
            heard.append(str(data.get("state")))
            if heard[-1] in ("queued", "checking"):
                server.step(job, JobStatus.CHECKING if heard[-1] == "queued" else JobStatus.DONE, "because")

        assert client.wait(job, on_news)["reason"] == "because"
        assert heard == ["queued", "checking", "done", "done"]


def test_waiting_for_one_that_fails_raises_its_reason(server: Server, model: Path) -> None:
    with Client(server.url) as client:
        job = client.submit(client.upload(model)["id"], shapes={"x": [1, 4]})["id"]
        server.step(job, JobStatus.FAILED, "operator Foo is unknown")
        with pytest.raises(JobFailed, match="operator Foo"):
            client.wait(job)


def test_a_result_is_downloaded(server: Server, model: Path, tmp_path: Path) -> None:
    with Client(server.url) as client:
        job = client.submit(client.upload(model)["id"], shapes={"x": [1, 4]})["id"]
        server.step(job, JobStatus.CHECKING)
        server.step(job, JobStatus.DONE, "converged", executable=server.application.blobs.put_bytes(b"program"))
        (tmp_path / "net.report.json").write_text("of another one")
        assert client.download(job, tmp_path / "net.kt").read_bytes() == b"program"
        assert not (tmp_path / "net.report.json").exists()
        with pytest.raises(InputError, match="has no log"):
            client.download(job, tmp_path / "log", "log")


def test_the_files_of_a_job_are_deleted(server: Server, model: Path, tmp_path: Path) -> None:
    with Client(server.url) as client:
        job = client.submit(client.upload(model)["id"], shapes={"x": [1, 4]})["id"]
        with pytest.raises(InputError, match="is queued; its files can be deleted when it has ended"):
            client.delete_files(job)
        server.step(job, JobStatus.CHECKING)
        server.step(job, JobStatus.DONE, "converged", executable=server.application.blobs.put_bytes(b"program"))
        client.delete_files(job)
        assert client.job(job)["files_removed"] is not None
        with pytest.raises(InputError, match=f"the executable of job {job} was removed on "):
            client.download(job, tmp_path / "net.kt")
        assert not (tmp_path / "net.kt").exists()


def test_the_files_of_several_jobs_are_deleted_and_each_refused_job_is_named(server: Server, model: Path) -> None:
    with Client(server.url) as client:
        number = client.upload(model)["id"]
        first, going, last = (client.submit(number, shapes={"x": [1, 4]}, seed=seed)["id"] for seed in range(3))
        for job in (first, last):
            server.step(job, JobStatus.FAILED, "broke", log=server.application.blobs.put_bytes(job.encode()))
        with pytest.raises(InputError) as refusal:
            client.delete_files(first, going, "0000", "a/b", last)
        assert str(refusal.value) == (
            f"job {going} is queued; its files can be deleted when it has ended; there is no job 0000; "
            "'a/b' is no id of a job; `kintune jobs` lists yours"
        )
        removed = {job["id"]: job["files_removed"] is not None for job in client.jobs()}
        assert removed == {first: True, going: False, last: True}


def test_a_model_that_cannot_be_used_is_refused(server: Server, tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"nonsense")
    with Client(server.url) as client:
        with pytest.raises(InputError, match=r"broken\.onnx: it is no ONNX file"):
            client.upload(tmp_path / "broken.onnx")
        with pytest.raises(InputError, match="does not exist"):
            client.upload(tmp_path / "missing.onnx")


def test_what_is_wrong_is_named(server: Server, model: Path) -> None:
    with Client(server.url) as client:
        number = client.upload(model)["id"]
        with pytest.raises(InputError, match=r"wanted\.minutes"):
            client.submit(number, minutes="long")
        with pytest.raises(InputError, match="there is no model 999"):
            client.submit(999)


def test_a_service_that_is_started_again_is_watched_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    answers = iter(
        [
            httpx.Response(503, json={"error": "the database is away", "kind": "StorageError"}),
            httpx.Response(200, text='event: job\ndata: {"state": "done"}\n\n'),
        ]
    )
    with Client("http://service", transport=httpx.MockTransport(lambda request: next(answers))) as client:
        assert list(client.watch("j1")) == [("job", {"state": "done"})]


def test_a_service_that_is_not_there_is_said_to_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    with Client("http://127.0.0.1:9") as client, pytest.raises(ServiceError, match="is `kintune serve` running there"):
        client.jobs()


def test_who_watches_a_service_that_is_not_there_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    with Client("http://127.0.0.1:9") as client, pytest.raises(ServiceError, match="is `kintune serve` running there"):
        client.wait("j1")


def test_a_watched_line_that_breaks_is_taken_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    told = iter(["queued", "", "", "", "", "", "done"])

    def answer(request: httpx.Request) -> httpx.Response:
        state = next(told)
        if not state:
            raise httpx.ConnectError("away", request=request)
        return httpx.Response(200, text=f'event: job\ndata: {{"state": "{state}"}}\n\n')

    with Client("http://service", transport=httpx.MockTransport(answer)) as client:
        assert [data["state"] for _, data in client.watch("j1")] == ["queued", "done"]


def answering(status: int, **more: Any) -> Client:
    """A client of something that answers everything like this."""
    return Client("http://service", transport=httpx.MockTransport(lambda request: httpx.Response(status, **more)))


def test_a_client_passes_on_what_is_asked_of_a_list() -> None:
    asked: list[httpx.URL] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url)
        return httpx.Response(200, json={"jobs": [{"id": "j1"}]})

    with Client("https://host/kintune", transport=httpx.MockTransport(answer)) as client:
        assert client.address == "https://host/kintune"
        assert client.jobs(limit=5, state="done") == [{"id": "j1"}]
    assert [str(each) for each in asked] == ["https://host/kintune/api/v1/jobs?state=done&limit=5"]


def test_nothing_is_written_of_a_download_that_is_refused(tmp_path: Path) -> None:
    with answering(404, json={"error": "job j1 has no log"}) as client, pytest.raises(InputError, match="has no log"):
        client.download("j1", tmp_path / "x.kt")
    assert list(tmp_path.iterdir()) == []


def test_uploads_are_listed_and_deleted(server: Server, model: Path) -> None:
    np.savez(model.with_name("first.npz"), x=np.zeros((1, 4), np.float32))
    with Client(server.url) as client:
        number = client.upload(model)["id"]
        (inputs,) = (each["id"] for each in client.upload_inputs(model.with_name("first.npz")))
        assert ([each["id"] for each in client.models()], [each["id"] for each in client.inputs()]) == (
            [number],
            [inputs],
        )
        assert client.user()["used"]["storage_mb"] == 0.0  # of some hundred bytes
        client.delete_model(number)
        client.delete_inputs(inputs)
        assert (client.models(), client.inputs()) == ([], [])
        with pytest.raises(InputError, match=f"there is no model {number}"):
            client.delete_model(number)


@pytest.mark.parametrize("job", ["", "../models", "a?b", "a#b", "a/b", "jöb"])
def test_what_is_no_id_of_a_job_is_refused(job: str) -> None:
    with answering(500) as client:
        for ask in (client.job, client.cancel, client.report, client.wait, lambda job: client.download(job, "x.kt")):
            with pytest.raises(InputError, match="is no id of a job; `kintune jobs` lists yours"):
                ask(job)


def test_an_export_is_waited_for_and_has_the_name_that_the_service_gives_it(tmp_path: Path) -> None:
    waited: list[float] = []

    def answer(request: httpx.Request) -> httpx.Response:
        waited.append(request.extensions["timeout"]["read"])
        named = 'attachment; filename="../net-1-py3-none-any.whl"'
        return httpx.Response(200, content=b"wheel", headers={**_FILE, "Content-Disposition": named})

    with Client("http://service", transport=httpx.MockTransport(answer)) as client:
        made = client.download("j1", tmp_path, "export/wheel")
        assert (made, made.read_bytes()) == (tmp_path / "net-1-py3-none-any.whl", b"wheel")
        assert client.download("j1", tmp_path / "net.kt") == tmp_path / "net.kt"
    assert waited[0] > waited[1]
    log = {"Content-Type": "text/plain; charset=utf-8", "Content-Disposition": "attachment"}
    with answering(200, content=b"text", headers=log) as client:
        assert client.download("j1", tmp_path, "log") == tmp_path / "j1"


_FILE: dict[str, str] = {
    "Content-Type": "application/octet-stream",
    "Content-Disposition": 'attachment; filename="net.kt"',
}


@pytest.mark.parametrize(
    "foreign",
    [
        {"html": "<h1>Sign in</h1>"},
        {"json": {"state": "done"}},
        {"content": b"page"},
        {"text": "It works!"},
        {"content": b"page", "headers": _FILE | {"Content-Type": "text/html"}},
        {"content": b"page", "headers": {"Content-Type": "application/octet-stream"}},
    ],
)
@pytest.mark.parametrize("what", ["executable", "log", "export/wheel"])
def test_what_another_server_answers_is_no_download(tmp_path: Path, foreign: dict[str, Any], what: str) -> None:
    (tmp_path / "net.kt").write_bytes(b"earlier")
    (tmp_path / "net.report.json").write_text("of the earlier one")
    with answering(200, **foreign) as client:
        for target in (tmp_path / "net.kt", tmp_path):
            with pytest.raises(ServiceError, match=r"^http://service does not answer as a service of Kintune; [^\n]*$"):
                client.download("j1", target, what)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["net.kt", "net.report.json"]
    assert (tmp_path / "net.kt").read_bytes() == b"earlier"


def test_a_download_from_a_service_that_is_not_there(tmp_path: Path) -> None:
    with Client("http://127.0.0.1:9") as client, pytest.raises(ServiceError, match="is `kintune serve` running there"):
        client.download("j1", tmp_path / "net.kt")
