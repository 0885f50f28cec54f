from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from sqlalchemy import select

from kintune.service.access import Visitor
from kintune.service.job_repository import Job
from kintune.service.job_request import JobRequest
from kintune.service.job_status import JobStatus
from kintune.service.schema import webhooks
from kintune.service.web import background_tasks as background_tasks
from kintune.service.web.application_state import ApplicationState
from kintune.service.web.background_tasks import BackgroundTasks, sweep
from kintune.service.webhooks import Webhook, Webhooks
from tests.support.reports import example_report
from tests.support.service_users import visitor


def lost(application: ApplicationState, data: bytes) -> str:
    """A file that nobody refers to, and that has lain there for long."""
    file = application.blobs.put_bytes(data)
    os.utime(application.blobs.path(file), (1.0, 1.0))
    return file


def test_what_nobody_refers_to_goes_once_it_is_old(application: ApplicationState) -> None:
    old = lost(application, b"old")
    new = application.blobs.put_bytes(b"new")
    os.utime(application.blobs.path(new), (application.now(), application.now()))
    assert sweep(application) == 1
    assert (application.blobs.has(old), application.blobs.has(new)) == (False, True)


def test_what_comes_again_while_others_are_swept_away_stays(
    application: ApplicationState, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {lost(application, text): text for text in (b"one", b"two")}
    remove = application.blobs.remove

    def meanwhile(file: str) -> None:
        remove(file)
        for other in texts.keys() - {file}:
            application.blobs.put_bytes(texts[other])
            os.utime(application.blobs.path(other), (application.now(), application.now()))

    monkeypatch.setattr(application.blobs, "remove", meanwhile)
    assert sweep(application) == 1
    assert len(list(application.blobs.digests())) == 1


def test_nothing_goes_while_it_is_backed_up(application: ApplicationState) -> None:
    file = lost(application, b"old")
    with application.blobs.unswept():
        assert sweep(application) == 0
    assert application.blobs.has(file)
    assert sweep(application) == 1


def ended(application: ApplicationState, owner: Visitor, days_ago: float, **files: str) -> Job:
    """A job that was done so many days ago."""
    at = application.now() - days_ago * 86400.0
    model = application.models.add(owner.user, "net.onnx", "0" * 64, 5, at, None).id
    job, _ = application.jobs.submit(owner, model, JobRequest(), at)
    application.jobs.step(job.id, JobStatus.CHECKING, "", at)
    return application.jobs.step(job.id, JobStatus.DONE, "converged", at, **files)


def test_results_go_when_their_time_is_over_unless_another_job_has_them(
    application: ApplicationState, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, shared, log, report = (lost(application, text) for text in (b"own", b"shared", b"log", b"report"))
    anna = visitor(application.database, "anna")
    first = ended(application, anna, 31.0, executable=own, log=log, report=report)
    second = ended(application, anna, 31.0, executable=shared)
    third = ended(application, anna, 29.0, executable=shared)
    assert sweep(application) == 0  # by default they are kept
    settings = msgspec.structs.replace(application.settings, keep_results_days=30.0)
    monkeypatch.setattr(application, "settings", settings)
    assert sweep(application) == 2
    has = application.blobs.has
    assert (has(own), has(log), has(report), has(shared)) == (False, False, True, True)
    found = [application.jobs.get(anna, job.id) for job in (first, second, third)]
    assert [job.files_removed for job in found] == [application.now(), application.now(), None]
    assert found[0].report == report
    noted = {(note.action, note.subject) for note in application.audit_log.read()}
    assert noted == {("expire files", f"job {job.id}") for job in (first, second)} | {("sweep", "2 files")}


def test_files_that_a_crash_has_left_go_with_the_next_sweep(
    application: ApplicationState, monkeypatch: pytest.MonkeyPatch
) -> None:
    anna, file = visitor(application.database, "anna"), lost(application, b"program")
    job = ended(application, anna, 31.0, executable=file)

    def killed(digest: str) -> None:
        raise KeyboardInterrupt

    settings = msgspec.structs.replace(application.settings, keep_results_days=30.0)
    with monkeypatch.context() as patch:
        patch.setattr(application, "settings", settings)
        patch.setattr(application.blobs, "remove", killed)
        with pytest.raises(KeyboardInterrupt):
            sweep(application)
    assert application.blobs.has(file)
    assert application.jobs.get(anna, job.id).executable is None
    assert sweep(application) == 1
    assert not application.blobs.has(file)


def test_a_sweep_that_fails_is_not_the_last(application: ApplicationState, monkeypatch: pytest.MonkeyPatch) -> None:
    again, failures = threading.Event(), iter([OSError("disk is away")])

    def sweep_incoming(before: float) -> None:
        for failure in failures:
            raise failure
        again.set()

    async def play() -> bool:
        running = BackgroundTasks(application)
        running.start()
        try:
            return await asyncio.to_thread(again.wait, 10)
        finally:
            await running.close()

    monkeypatch.setattr(background_tasks, "_SWEEP_S", 0.01)
    monkeypatch.setattr(application.blobs, "sweep_incoming", sweep_incoming)
    assert asyncio.run(play())


def test_a_webhook_is_told_what_was_won(application: ApplicationState) -> None:
    anna = visitor(application.database, "anna")
    model = application.models.add(anna.user, "net.onnx", "0" * 64, 5, 100.0, None).id
    job, _ = application.jobs.submit(anna, model, JobRequest(webhook="https://a.example/done"), 1000.0)
    call = Webhook(1, job.id, anna.user, "https://a.example/done", 0)
    assert background_tasks._body(application, call) == {"job": job.id, "model": "net", "state": "queued", "reason": ""}
    report = example_report(fastest_baseline=example_report().latency_ms.fastest_baseline)
    file = application.blobs.put_bytes(msgspec.json.encode(report))
    application.jobs.step(job.id, JobStatus.CHECKING, "", 1001.0)
    application.jobs.step(job.id, JobStatus.DONE, "its time was up", 1002.0, report=file)
    body = background_tasks._body(application, call)
    assert (body["state"], body["reason"], body["latency_ms"]) == ("done", "its time was up", 15.0)
    assert body["result"] == "1.08x as fast as onnxruntime (16.2 ms)"
    assert body["fastest_baseline"]["name"] == "onnxruntime"


def ask_for_calls(application: ApplicationState, *urls: str) -> None:
    """Calls of one owner that are due now."""
    anna = visitor(application.database, "anna")
    model = application.models.add(anna.user, "net.onnx", "0" * 64, 5, 100.0, None).id
    for number, url in enumerate(urls):
        job, _ = application.jobs.submit(anna, model, JobRequest(webhook=url, seed=number), 1000.0)
        Webhooks(application.database).ask(job, 1000.0)


def outcomes(application: ApplicationState) -> list[str]:
    """What came of the calls, in the order in which they were asked for; "" of those that are not made yet."""
    with application.database.snapshot() as connection:
        return [row.outcome for row in connection.execute(select(webhooks).order_by(webhooks.c.id))]


def noted(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Is set once what came of a call is recorded."""
    recorded, made = threading.Event(), Webhooks.made

    def record(calls: Webhooks, call: Webhook, outcome: str, now: float, *, succeeded: bool) -> None:
        made(calls, call, outcome, now, succeeded=succeeded)
        recorded.set()

    monkeypatch.setattr(Webhooks, "made", record)
    return recorded


async def play(application: ApplicationState, recorded: threading.Event) -> None:
    """Makes the calls that are due until one of them is recorded."""
    running = BackgroundTasks(application)
    running.start()
    try:
        assert await asyncio.to_thread(recorded.wait, 60)
    finally:
        await running.close()


def test_a_receiver_that_does_not_answer_keeps_no_other_waiting(
    application: ApplicationState, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def post(call: Webhook, body: Mapping[str, Any], address: str | None) -> tuple[bool, str]:
        asked.append(call.host)
        if call.host == "slow.example":
            await asyncio.Event().wait()
        return True, "answered 200"

    settings = msgspec.structs.replace(application.settings, local_webhooks=True)
    monkeypatch.setattr(application, "settings", settings)
    monkeypatch.setattr(background_tasks, "_post", post)
    ask_for_calls(application, *["https://slow.example/x"] * 3, "https://quick.example/x")
    asyncio.run(play(application, noted(monkeypatch)))
    assert outcomes(application) == ["", "", "", "answered 200"]
    assert asked.count("slow.example") <= 2


def test_the_time_of_a_call_holds_for_looking_its_name_up_too(
    application: ApplicationState, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = threading.Event()

    def public_address(url: str) -> str | None:
        found.wait(60.0)
        return None

    monkeypatch.setattr(background_tasks, "_CALL_S", 0.2)
    monkeypatch.setattr(background_tasks, "public_address", public_address)
    ask_for_calls(application, "https://a.example/x")
    asyncio.run(play(application, noted(monkeypatch)))
    found.set()
    assert outcomes(application) == ["no answer within 0.2 s"]
