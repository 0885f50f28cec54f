"""Actions on several jobs, asked for without a browser: the address of the answer says what came of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from kintune.service.access import Quota, Scope
from kintune.service.job_status import JobStatus
from kintune.service.portal import bulk, models
from kintune.service.portal.jobs import _told
from kintune.service.web.application_state import ApplicationState
from tests.support.service_users import upload
from tests.support.web_service import NOW, browser_of, client_of

_OWN = {"Sec-Fetch-Site": "same-origin"}


@pytest.fixture
def browser(application: ApplicationState) -> Iterator[TestClient]:
    with browser_of(application) as client:
        for module in (bulk, models):
            client.app.include_router(module.router)  # type: ignore[attr-defined]
        yield client


def submit(client: TestClient, model: int) -> str:
    wanted = {"shapes": {"x": [1, 4]}, "minutes": 5.0}
    return str(client.post("/api/v1/jobs", json={"model": model, "wanted": wanted}).json()["id"])


def act(client: TestClient, action: str, *jobs: str, shown: str = "") -> str:
    data = {"action": action, "job": list(jobs)}
    answer = client.post(f"/jobs/actions{shown}", data=data, headers=_OWN, follow_redirects=False)
    assert answer.status_code == 303
    return answer.headers["location"]


def test_the_answer_leads_back_to_the_same_list(application: ApplicationState, browser: TestClient) -> None:
    anna = client_of(application, browser, "anna")
    job = submit(anna, upload(anna))
    shown = "?q=small&state=running&state=failed&sort=gain&page=3"
    assert act(anna, "cancel", job, shown=shown) == f"/{shown}&did={job}"
    assert act(anna, "cancel", shown="?nonsense=https%3A%2F%2Fa.example") == "/"


def test_why_jobs_were_not_changed_is_said(application: ApplicationState, browser: TestClient) -> None:
    anna = client_of(application, browser, "anna", quota=Quota(jobs=2, minutes=1440.0))
    model = upload(anna)
    failed, going = submit(anna, model), submit(anna, model)
    application.jobs.step(failed, JobStatus.FAILED, "no memory", NOW)
    submit(anna, model)  # as many as may be
    gone = "0" * 12
    assert act(anna, "retry", failed, going, gone) == f"/?limited={failed}&refused={going}&gone={gone}"
    reader = client_of(application, browser, "anna", scope=Scope.READ)
    assert act(reader, "cancel", failed, going) == f"/?forbidden={failed},{going}"
    assert _told({"refused": f"{failed},{going}"})[0][0].startswith(
        f"Jobs {failed} and {going} could not be changed: a job can be finished while it is tuned, cancelled"
    )
    said = [words for words, _ in _told({"did": f"{failed},{going}", "limited": gone, "forbidden": "x", "gone": "<b>"})]
    assert said == [
        "2 jobs: it will be done.",
        f"Job {gone} could not be submitted again: that is beyond your limits of jobs, of minutes a day, or of "
        "storage.",
    ]


def test_files_are_deleted_of_jobs_that_are_over(application: ApplicationState, browser: TestClient) -> None:
    anna, boris = client_of(application, browser, "anna"), client_of(application, browser, "boris")
    model = upload(anna)
    over, going = submit(anna, model), submit(anna, model)
    application.jobs.step(over, JobStatus.FAILED, "no memory", NOW, log=application.blobs.put_bytes(b"said"))
    assert act(boris, "delete-files", over) == f"/?gone={over}"
    assert application.jobs.of_service(over).has_files
    assert act(anna, "delete-files", over, going, shown="?q=small") == f"/?q=small&deleted={over}&refused={going}"
    assert not application.jobs.of_service(over).has_files
    assert application.audit_log.read(limit=1)[0].action == "delete files"
    assert _told({"deleted": over}) == [("1 job: executable and log are deleted, the report stays.", "good")]
    reader = client_of(application, browser, "anna", scope=Scope.READ)
    assert act(reader, "delete-files", over) == f"/?forbidden={over}"


def test_uploads_are_deleted_or_it_is_said_why_not(application: ApplicationState, browser: TestClient) -> None:
    anna, boris = client_of(application, browser, "anna"), client_of(application, browser, "boris")
    busy, free = upload(anna), upload(anna, b"another one")
    submit(anna, busy)

    def forget(client: TestClient, kind: str, *numbers: int) -> str:
        data = {"upload": [str(number) for number in numbers]}
        answer = client.post(f"/{kind}/forget?q=net", data=data, headers=_OWN, follow_redirects=False)
        assert answer.status_code == 303
        return answer.headers["location"]

    assert forget(anna, "models", busy) == f"/models?q=net&needed={busy}"
    assert forget(boris, "models", free, busy) == f"/models?q=net&gone={free},{busy}"
    assert forget(anna, "inputs", free) == f"/models?q=net&gone={free}"
    assert forget(client_of(application, browser, "anna", scope=Scope.READ), "models", free) == (
        f"/models?q=net&forbidden={free}"
    )
    assert forget(anna, "models", busy, free) == f"/models?q=net&needed={busy}&forgotten=1"
    assert application.audit_log.read(limit=1)[0].subject == f"model {free}"
