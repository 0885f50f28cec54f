from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from fastapi.testclient import TestClient

from kintune.service.job_repository import Job
from kintune.service.web.application_state import ApplicationState
from tests.support.portal_jobs import PortalJobs, report_of_layers
from tests.support.reports import example_report
from tests.support.trace_events import trace_problems


@pytest.fixture
def made(application: ApplicationState, tmp_path: Path) -> PortalJobs:
    return PortalJobs(application, tmp_path)


@pytest.fixture
def done(made: PortalJobs) -> Job:
    return made.done(made.model("resnet50"), report_of_layers("resnet50", 1.32))


def test_a_profile_is_had_as_json_page_and_trace(browser: TestClient, done: Job) -> None:
    found = browser.get(f"/api/v1/jobs/{done.id}/profile").json()
    assert (found["executable"], found["model"]) == ("resnet50.kt", "resnet50")
    assert len(found["calls"]) == 13
    assert found["calls"][1]["title"] == "layer1/conv0 + BN + Relu"
    page = browser.get(f"/api/v1/jobs/{done.id}/profile/page")
    assert page.headers["content-type"].startswith("text/html")
    assert "layer1/conv0 + BN + Relu" in page.text
    trace = browser.get(f"/api/v1/jobs/{done.id}/profile/trace")
    assert trace.headers["content-disposition"] == 'attachment; filename="resnet50.trace.json"'
    assert trace_problems(trace.content) == []
    assert len([each for each in json.loads(trace.content)["traceEvents"] if each["ph"] == "X"]) == 13


def test_without_a_profile_it_is_said_what_to_do(browser: TestClient, made: PortalJobs) -> None:
    report = msgspec.structs.replace(example_report(), profile=None)
    job = made.done(made.model("resnet18"), report)
    answer = browser.get(f"/api/v1/jobs/{job.id}/profile")
    assert answer.status_code == 404
    assert "has no profile; download its result and call kintune profile" in answer.json()["error"]
    queued = made.job(made.model("other"))
    assert browser.get(f"/api/v1/jobs/{queued.id}/profile").json()["error"].endswith("has no report (it is queued)")


def test_others_do_not_see_it(client: Callable[..., TestClient], done: Job) -> None:
    assert client("anna").get(f"/api/v1/jobs/{done.id}/profile").status_code == 404


def test_a_model_may_be_called_anything(browser: TestClient, made: PortalJobs) -> None:
    done = made.done(made.model("\u6a21\u578b"), report_of_layers("\u6a21\u578b", 1.32))
    for kind, ending in (("page", "profile.html"), ("trace", "trace.json")):
        header = browser.get(f"/api/v1/jobs/{done.id}/profile/{kind}").headers["content-disposition"]
        assert header == f"attachment; filename*=UTF-8''%E6%A8%A1%E5%9E%8B.{ending}"
