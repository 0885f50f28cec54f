from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from fastapi import Request
from fastapi.testclient import TestClient

from kintune.core.report import ProgressReport
from kintune.scheduler.resources import Placement
from kintune.service.access import Quota, Scope, Visitor
from kintune.service.job_request import JobRequest
from kintune.service.orchestrator.events import EventTally, Progressed, StageBegan, StageEnded, Standing, Standings
from kintune.service.web import live
from kintune.service.web.application_state import ApplicationState
from kintune.service.web.authentication import visitor_of
from kintune.service.web.live_state import LiveState

HOST, GPU = Placement("local", 1), Placement(None, 0, 0, "gpu", exclusive=True)


@pytest.fixture
def live_state(browser: TestClient, application: ApplicationState) -> LiveState:
    """The live state, in which a device was busy for a minute of the last five, and a host still is."""
    now = application.now()
    live_state: LiveState = browser.app.state.live_state  # type: ignore[attr-defined]
    live_state.update(StageBegan("someones", "profile-1", "profile", GPU, now - 90))
    live_state.update(StageEnded("someones", "profile-1", now - 30, EventTally(64, 3)))
    live_state.update(StageBegan("someones", "build-2", "build", HOST, now - 30))
    live_state.update(
        Standings((Standing("gpu", "device", "big", "", 1.0), Standing("pi", "device", "pi5", "cut", 2.0)))
    )
    return live_state


@pytest.mark.usefixtures("live_state")
def test_the_resources_tell_what_ran_how_busy_it_was_and_what_was_disturbed(
    browser: TestClient, client: Callable[..., TestClient]
) -> None:
    found = client("anna").get("/api/v1/resources").json()
    assert [(stage["job"], stage["kind"]) for stage in found["stages"]] == [(None, "profile"), (None, "build")]
    assert found["use"] == {"gpu": 0.2, "local": 0.1}
    assert [(each["id"], each["lost"]) for each in found["resources"]] == [("gpu", ""), ("pi", "cut")]
    assert found["measurements"] == {"gpu": {"measured": 64, "disturbed": 3}}


def test_who_is_no_longer_let_in_hears_no_more_however_much_there_is_to_say(
    browser: TestClient,
    client: Callable[..., TestClient],
    application: ApplicationState,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app: Any = browser.app
    headers = [(b"authorization", client("anna").headers["Authorization"].encode())]
    request = Request({"type": "http", "method": "GET", "headers": headers, "app": app})
    anna = visitor_of(request, application)
    model = application.models.add(anna.user, "net.onnx", "0" * 64, 5, 1.0, None).id
    job, _ = application.jobs.submit(anna, model, JobRequest(), 2.0)

    async def listen() -> int:
        heard = 0
        answer = live.events(job.id, request, anna, application)
        async for _ in answer.body_iterator:
            if heard == 0:
                application.users.revoke(anna.token or 0, 3.0)
            heard += 1
            app.state.live_state.update(Progressed(job.id, ProgressReport("profile", trials=heard)))
        return heard

    monkeypatch.setattr(live, "_STILL_HERE_S", 0.05)
    assert asyncio.run(asyncio.wait_for(listen(), 20)) > 0


@pytest.mark.usefixtures("live_state")
def test_the_same_for_prometheus(browser: TestClient) -> None:
    text = browser.get("/metrics").text
    assert 'kintune_stages_running{kind="build"} 1.0' in text
    assert 'kintune_resource_use{kind="device",type="big"} 0.2' in text
    assert 'kintune_measurements{type="big"} 64.0' in text
    assert 'kintune_measurements_disturbed{type="big"} 3.0' in text
    assert 'kintune_resources_up{kind="device",type="big"} 1.0' in text
    assert 'kintune_resources_up{kind="device",type="pi5"} 0.0' in text
    assert 'kintune_jobs{state="queued"} 0.0' in text


def test_a_stage_of_an_own_job_is_named_however_many_are_newer(
    live_state: LiveState, client: Callable[..., TestClient], application: ApplicationState
) -> None:
    anna = client("anna", quota=Quota(jobs=1000, minutes=1e6))
    user = application.users.user("anna")
    model = application.models.add(user.id, "net.onnx", "0" * 64, 5, 1.0, None).id
    visitor = Visitor(user.id, "anna", Scope.SUBMIT, None, user.quota)
    ids = [application.jobs.submit(visitor, model, JobRequest(), 2.0 + at)[0].id for at in range(201)]
    live_state.update(StageBegan(ids[0], "build-1", "build", HOST, application.now() - 5))
    found = anna.get("/api/v1/resources").json()
    assert ids[0] in [stage["job"] for stage in found["stages"]]
