"""Background tasks of the web process: webhooks that are due, and an hourly sweep of unneeded files."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import msgspec

from kintune.core.report import RunReport
from kintune.service.logs import job_logger
from kintune.service.web.application_state import ApplicationState
from kintune.service.webhooks import Webhook, Webhooks, choose_calls, public_address
from kintune.terminal.comparison import describe_result
from kintune.terminal.formatting import counted

__all__ = ["BackgroundTasks", "sweep"]
_SWEEP_S = 3600.0
_CALL_S = 15.0
_DAY_S = 86400.0
_LOOK_S = 60.0  # news may be lost
_MOST_LOOKUPS = 40  # of names at once; one that takes too long goes on in its thread
_log = logging.getLogger(__name__)


class BackgroundTasks:
    """Tasks in the event loop of the web process: two that stay, and one for each call under way."""

    def __init__(self, application: ApplicationState) -> None:
        self._application = application
        self._webhooks = Webhooks(application.database)
        self._news = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._calls: dict[asyncio.Task[None], Webhook] = {}
        self._lookups = ThreadPoolExecutor(_MOST_LOOKUPS, "webhook-lookup")  # not the threads that all others share

    def start(self) -> None:
        """Starts the tasks that stay."""
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._make_calls()), loop.create_task(self._sweep_now_and_then())]

    def look(self) -> None:
        """Says that a job has ended, so that a webhook may be due."""
        self._news.set()

    async def close(self) -> None:
        """Ends all tasks; calls that are not answered yet are made again later."""
        tasks = [*self._tasks, *self._calls]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._lookups.shutdown(wait=False, cancel_futures=True)

    async def _make_calls(self) -> None:
        while True:
            wait = _LOOK_S
            try:
                now, under_way = self._application.now(), list(self._calls.values())  # before: some may end meanwhile
                due = await asyncio.to_thread(self._webhooks.due, now)
                for call in choose_calls(due, under_way):
                    task = asyncio.create_task(self._call(call))
                    self._calls[task] = call
                    task.add_done_callback(self._called)
                next_due = await asyncio.to_thread(self._webhooks.next_due, now)
                if next_due is not None:
                    wait = min(_LOOK_S, max(0.5, next_due - now))
            except Exception:  # whatever it is, the next call is to be made
                _log.exception("webhooks could not be called")
            alarm = asyncio.get_running_loop().call_later(wait, self._news.set)
            await self._news.wait()  # `wait_for` would miss that it is cancelled when there are news at the same moment
            alarm.cancel()
            self._news.clear()

    async def _call(self, call: Webhook) -> None:
        """Makes a call, and records its outcome."""
        try:
            succeeded, outcome = await asyncio.wait_for(self._ask(call), _CALL_S)
        except asyncio.TimeoutError:
            succeeded, outcome = False, f"no answer within {_CALL_S:g} s"
        except Exception as error:  # whatever it is, the call is tried again later
            succeeded, outcome = False, f"{type(error).__name__}: {error}"
        if not succeeded:
            job_logger(__name__, call.job).warning("the webhook %s could not be called: %s", call.url, outcome)
        await asyncio.to_thread(self._webhooks.made, call, outcome, self._application.now(), succeeded=succeeded)

    def _called(self, task: asyncio.Task[None]) -> None:
        """A call is over: another one may be made, at once unless its outcome could not be recorded."""
        del self._calls[task]
        if task.cancelled():
            return
        if (error := task.exception()) is None:
            self._news.set()
        else:
            _log.error("what came of a webhook could not be recorded", exc_info=error)

    async def _ask(self, call: Webhook) -> tuple[bool, str]:
        """Calls an address; returns whether that succeeded, and the outcome."""
        body = await asyncio.to_thread(_body, self._application, call)
        address = None
        if not self._application.settings.local_webhooks:
            loop = asyncio.get_running_loop()
            address = await loop.run_in_executor(self._lookups, public_address, call.url)
            if address is None:
                return False, "its address is not on the public internet"
        return await _post(call, body, address)

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
    """Deletes models and results that have expired, and files that nobody refers to; returns how many files went.

    The files are listed before the references, so that what comes in meanwhile is not among them.  Nothing is deleted
    during a back-up.
    """
    with application.blobs.sweeping() as may:
        return _sweep(application, application.now()) if may else 0


def _sweep(application: ApplicationState, now: float) -> int:
    application.blobs.sweep_incoming(now - _SWEEP_S)
    application.exports.sweep(now)
    files = list(application.blobs.digests())
    for model in application.models.expire(now):
        application.audit_log.note(now, "expire", f"model {model}")
    _expire_results(application, now)
    needed = application.models.files() | application.jobs.files()
    gone = 0
    for file in files:
        if file not in needed and _is_old(application, file, now):  # at the last moment: it may have come again
            application.blobs.remove(file)
            gone += 1
    if gone:
        application.audit_log.note(now, "sweep", counted(gone, "file"))
    return gone


def _expire_results(application: ApplicationState, now: float) -> None:
    """Has jobs forget their executables and logs when their time is over, if it is limited."""
    if not (kept_s := application.settings.keep_results_days * _DAY_S):
        return
    with application.database.transaction():
        for job in application.jobs.expire_files(now - kept_s, now):
            application.audit_log.note(now, "expire files", f"job {job}")


def _is_old(application: ApplicationState, file: str, now: float) -> bool:
    """Returns whether a file has been there for an hour: a newer one is about to be referred to."""
    try:
        return now - application.blobs.path(file).stat().st_mtime > _SWEEP_S
    except FileNotFoundError:
        return False
