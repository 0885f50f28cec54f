"""Background tasks of the web process: webhooks that are due, and an hourly sweep of files that nobody needs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import Any

import httpx
import msgspec

from kintune.core.report import RunReport
from kintune.service.exports import sweep_exports
from kintune.service.web.application_state import ApplicationState
from kintune.service.webhooks import Webhook, Webhooks, public_address
from kintune.terminal.comparison import describe_result

__all__ = ["BackgroundTasks", "sweep"]
_SWEEP_S = 3600.0
_DAY_S = 86400.0
_CALL_S = 15.0
_LOOK_S = 60.0  # news may be lost
_log = logging.getLogger(__name__)


class BackgroundTasks:
    """Two tasks in the event loop of the web process."""

    def __init__(self, application: ApplicationState) -> None:
        self._application = application
        self._webhooks = Webhooks(application.database)
        self._news = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Starts both tasks."""
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._make_calls()), loop.create_task(self._sweep_now_and_then())]

    def look(self) -> None:
        """Says that a job has ended, so that a webhook may be due."""
        self._news.set()

    async def close(self) -> None:
        """Ends both tasks."""
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _make_calls(self) -> None:
        while True:
            wait = _LOOK_S
            try:
                for call in await asyncio.to_thread(self._webhooks.due, self._application.now()):
                    await self._call(call)
                due = await asyncio.to_thread(self._webhooks.next_due)
                if due is not None:
                    wait = min(_LOOK_S, max(0.5, due - self._application.now()))
            except Exception:  # whatever it is, the next call is to be made
                _log.exception("webhooks could not be called")
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._news.wait(), wait)
            self._news.clear()

    async def _call(self, call: Webhook) -> None:
        succeeded, outcome = False, "its address is not on the public internet"
        try:
            body = await asyncio.to_thread(_body, self._application, call)
            if self._application.settings.local_webhooks:
                succeeded, outcome = await asyncio.wait_for(_post(call, body, None), _CALL_S)
            elif address := await asyncio.to_thread(public_address, call.url):
                succeeded, outcome = await asyncio.wait_for(_post(call, body, address), _CALL_S)
        except Exception as error:  # whatever it is, it must not keep the calls after this one waiting
            outcome = f"{type(error).__name__}: {error}"
        await asyncio.to_thread(self._webhooks.made, call, outcome, self._application.now(), succeeded=succeeded)

    async def _sweep_now_and_then(self) -> None:
        while True:
            try:
                await asyncio.to_thread(sweep, self._application)
            except Exception:  # whatever it is, the next sweep is to come
                _log.exception("the sweep failed")
            await asyncio.sleep(_SWEEP_S)


def _body(application: ApplicationState, call: Webhook) -> dict[str, Any]:
    """Returns what a webhook is told: the job and its state; of one that has a report what was won against others."""
    job = application.jobs.of_service(call.job)
    name = application.models.of_job(job.model).name
    body: dict[str, Any] = {"job": job.id, "model": name, "state": job.state.value, "reason": job.reason}
    if job.report is not None and application.blobs.has(job.report):
        try:
            with application.blobs.open(job.report) as file:
                report = msgspec.json.decode(file.read(), type=RunReport)
        except msgspec.MsgspecError:  # another version has written it
            return body
        body["latency_ms"] = report.latency_ms.tuned
        body["fastest_baseline"] = msgspec.to_builtins(report.fastest_baseline)
        body["result"] = describe_result(report.latency_ms)
    return body


async def _post(call: Webhook, body: Mapping[str, Any], address: str | None) -> tuple[bool, str]:
    """Calls a webhook, at this numeric address if one is given; returns whether it succeeded, and the status."""
    url = httpx.URL(call.url)
    headers, extensions = {"Host": url.netloc.decode("ascii")}, {"sni_hostname": url.host}
    if address is not None:
        url = url.copy_with(host=address)
    async with httpx.AsyncClient(timeout=_CALL_S, follow_redirects=False, trust_env=False) as client:
        asked = client.stream("POST", url, json=body, headers=headers, extensions=extensions)
        async with asked as response:
            return response.is_success, f"answered {response.status_code}"


def sweep(application: ApplicationState) -> int:
    """Deletes models that have expired, and files that nobody refers to; returns how many files went.

    The files are listed before the references, so that what comes in meanwhile is not among them.  Nothing is deleted
    during a back-up.
    """
    with application.blobs.sweeping() as may:
        return _sweep(application, application.now()) if may else 0


def _sweep(application: ApplicationState, now: float) -> int:
    application.blobs.sweep_incoming(now - _SWEEP_S)
    sweep_exports(application.settings.exports, now - _DAY_S)
    files = list(application.blobs.digests())
    for model in application.models.expire(now):
        application.audit_log.note(now, "expire", f"model {model}")
    needed = application.models.files() | application.jobs.files()
    gone = 0
    for file in files:
        if file not in needed and _is_old(application, file, now):  # at the last moment: it may have come again
            application.blobs.remove(file)
            gone += 1
    if gone:
        application.audit_log.note(now, "sweep", f"{gone} files")
    return gone


def _is_old(application: ApplicationState, file: str, now: float) -> bool:
    """Returns whether a file has been there for an hour: a newer one is about to be referred to."""
    try:
        return now - application.blobs.path(file).stat().st_mtime > _SWEEP_S
    except FileNotFoundError:
        return False
