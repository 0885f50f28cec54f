from __future__ import annotations

import asyncio
import os
import threading

import msgspec
import pytest

from kintune.service.job_request import JobRequest
from kintune.service.job_status import JobStatus
from kintune.service.web import background_tasks as background_tasks
from kintune.service.web.application_state import ApplicationState
from kintune.service.web.background_tasks import BackgroundTasks, sweep
from kintune.service.webhooks import Webhook
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
    call = Webhook(1, job.id, "https://a.example/done", 0)
    assert background_tasks._body(application, call) == {"job": job.id, "model": "net", "state": "queued", "reason": ""}
    report = example_report(fastest_baseline=example_report().latency_ms.fastest_baseline)
    file = application.blobs.put_bytes(msgspec.json.encode(report))
    application.jobs.step(job.id, JobStatus.CHECKING, "", 1001.0)
    application.jobs.step(job.id, JobStatus.DONE, "its time was up", 1002.0, report=file)
    body = background_tasks._body(application, call)
    assert (body["state"], body["reason"], body["latency_ms"]) == ("done", "its time was up", 15.0)
    assert body["result"] == "1.08x as fast as onnxruntime (16.2 ms)"
    assert body["fastest_baseline"]["name"] == "onnxruntime"
