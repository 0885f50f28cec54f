from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from kintune.core.report import FastestBaseline, ProgressReport
from kintune.service.access import Quota, Scope
from kintune.service.job_status import JobStatus
from kintune.service.web.application_state import ApplicationState
from kintune.service.webhooks import Webhooks
from tests.support.service_users import upload
from tests.support.toy_model import write_model
from tests.support.web_service import NOW, browser_of, client_of, opened_application


@pytest.fixture
def anna(client: Callable[..., TestClient]) -> TestClient:
    return client("anna")


@pytest.fixture
def model(anna: TestClient) -> int:
    return upload(anna)


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TestClient, int]]:
    """A client and its model, at a service that is only asked for what it refuses."""
    with opened_application(tmp_path_factory.mktemp("service")) as application, browser_of(application) as browser:
        client = client_of(application, browser, "anna")
        yield client, upload(client)


def submit(client: TestClient, model: int, key: str = "", **wanted: object) -> Any:
    headers = {"Idempotency-Key": key} if key else {}
    return client.post("/api/v1/jobs", json={"model": model, "wanted": wanted}, headers=headers)


def test_a_job_is_queued_and_shown(anna: TestClient, model: int) -> None:
    answer = submit(anna, model, minutes=2.0, until=8.5)
    assert answer.status_code == 201
    job = anna.get(f"/api/v1/jobs/{answer.json()['id']}").json()
    assert (job["state"], job["wanted"]["until"], job["has_result"]) == ("queued", "8.5", False)
    assert [step["state"] for step in job["steps"]] == ["queued"]
    name = anna.get(f"/api/v1/models/{model}").json()["name"]
    assert job["model_name"] == name
    assert [each["model_name"] for each in anna.get("/api/v1/jobs").json()["jobs"]] == [name]


def test_the_same_key_gets_the_same_job(anna: TestClient, model: int) -> None:
    first, again = submit(anna, model, "k1", minutes=2.0), submit(anna, model, "k1", minutes=2.0)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]
    assert submit(anna, model, "k2", minutes=2.0).json()["id"] != first.json()["id"]
    assert len(anna.get("/api/v1/jobs").json()["jobs"]) == 2


def test_the_same_key_for_another_job_is_refused(anna: TestClient, model: int) -> None:
    submit(anna, model, "k1", minutes=2.0)
    answer = submit(anna, model, "k1", minutes=3.0)
    assert answer.status_code == 422
    assert "idempotency key" in answer.json()["error"]


@pytest.mark.parametrize(
    "wanted",
    [
        {"minutes": 0}, {"minutes": -1}, {"minutes": "two"}, {"minutes": 1e9}, {"trials": 1.5}, {"priority": 0},
        {"priority": 1e6}, {"device": "a b"}, {"device": "gpu9"}, {"device": ""}, {"until": 0}, {"until": "x"},
        {"seed": -1}, {"seed": 1 << 64},
        {"shapes": {"x": [-1, 4]}}, {"shapes": {"x": "1x4"}}, {"shapes": {"": [1]}}, {"shapes": {"x": [1] * 40}},
        {"shapes": {"x": [[1, 4], 4]}}, {"shapes": {"x": [[1, 4], [1, 4]]}}, {"shapes": {"x": [[[1]]]}},
        {"shapes": {"x": [[n] for n in range(20)]}}, {"shapes": {"x": [[1], [2]], "y": [[1], [2], [3]]}},
        {"webhook": "ftp://a.example"}, {"webhook": "http://u:p@a.example"}, {"webhook": "nonsense"}, {"unknown": 1},
        {"share": "yes"},
    ],
)  # fmt: skip
def test_nonsense_is_refused_and_named(refusing: tuple[TestClient, int], wanted: dict[str, object]) -> None:
    client, model = refusing
    answer = submit(client, model, **wanted)
    assert answer.status_code == 422
    assert next(iter(wanted)) in answer.text
    assert client.get("/api/v1/jobs").json()["jobs"] == []


def test_several_shapes_are_told_as_they_were_asked_for(anna: TestClient, model: int) -> None:
    wanted = {"shapes": {"x": [[1, 4], [2, 4]], "y": [3]}}
    answer = submit(anna, model, **wanted)
    assert answer.status_code == 201
    told = anna.get(f"/api/v1/jobs/{answer.json()['id']}").json()
    assert told["wanted"]["shapes"] == wanted["shapes"]


def test_a_model_that_cannot_be_used_is_refused(anna: TestClient) -> None:
    answer = submit(anna, upload(anna, b"nonsense"))
    assert answer.status_code == 422
    assert "cannot be used" in answer.json()["error"]


def test_somebody_else_s_things_are_not_there(anna: TestClient, client: Callable[..., TestClient], model: int) -> None:
    boris, job = client("boris"), submit(anna, model).json()["id"]
    assert submit(boris, model).status_code == 404
    for path in ("", "/events", "/report", "/executable", "/log"):
        assert boris.get(f"/api/v1/jobs/{job}{path}").status_code == 404
    for command in ("cancel", "finish", "retry"):
        assert boris.post(f"/api/v1/jobs/{job}/{command}").status_code == 404
    assert boris.post(f"/api/v1/jobs/{job}/priority", json={"priority": 2}).status_code == 404
    assert boris.get("/api/v1/jobs", params={"everybody": True}).json()["jobs"] == []
    assert anna.get(f"/api/v1/jobs/{job}").json()["state"] == "queued"


def test_quota(client: Callable[..., TestClient], application: ApplicationState) -> None:
    few = client("few", quota=Quota(jobs=1, minutes=10.0))
    model = upload(few)
    assert submit(few, model, minutes=11.0).status_code == 403
    assert submit(few, model, minutes=5.0).status_code == 201
    refused = submit(few, model, minutes=5.0)
    assert (refused.status_code, refused.headers["Retry-After"], refused.json()["kind"]) == (429, "60", "QuotaSpent")
    assert "at once; cancel one; try again in about a minute" in refused.json()["error"]


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/done", "http://[fe80::1]/", "http://10.0.0.1/"])
def test_a_webhook_to_a_blocked_address_is_refused_when_it_is_given(anna: TestClient, model: int, url: str) -> None:
    refused = submit(anna, model, webhook=url)
    assert refused.status_code == 422
    assert "is not on the public internet" in refused.json()["error"]
    assert anna.get("/api/v1/jobs").json()["jobs"] == []


def test_what_became_of_a_webhook_is_told_with_the_job(
    anna: TestClient, application: ApplicationState, model: int
) -> None:
    job = submit(anna, model, webhook="https://8.8.8.8/done").json()["id"]
    assert anna.get(f"/api/v1/jobs/{job}").json()["webhook_calls"] == []
    calls = Webhooks(application.database)
    calls.ask(application.jobs.of_service(job), 10.0)
    calls.made(calls.due(10.0)[0], "answered 404", 11.0, succeeded=False)
    (call,) = anna.get(f"/api/v1/jobs/{job}").json()["webhook_calls"]
    assert (call["outcome"], call["attempts"], call["due"]) == ("answered 404", 1, 21.0)


def test_wishes_wait_for_the_orchestrator(anna: TestClient, application: ApplicationState, model: int) -> None:
    job = submit(anna, model).json()["id"]
    assert anna.post(f"/api/v1/jobs/{job}/finish").status_code == 409  # it has not begun
    assert anna.post(f"/api/v1/jobs/{job}/priority", json={"priority": 3}).status_code == 202
    assert anna.post(f"/api/v1/jobs/{job}/cancel").status_code == 202
    assert [(command.job, command.command.value, command.value) for command in application.jobs.pending_commands()] == [
        (job, "priority", 3.0),
        (job, "cancel", None),
    ]


def test_only_what_has_ended_badly_is_retried(anna: TestClient, application: ApplicationState, model: int) -> None:
    job = submit(anna, model).json()["id"]
    assert anna.post(f"/api/v1/jobs/{job}/retry").status_code == 409
    application.jobs.step(job, JobStatus.FAILED, "it broke", 1.0)
    new = anna.post(f"/api/v1/jobs/{job}/retry").json()
    assert (new["retry_of"], new["state"]) == (job, "queued")
    assert anna.post(f"/api/v1/jobs/{job}/cancel").status_code == 409


def test_retrying_again_while_it_is_retried_is_the_same(
    anna: TestClient, application: ApplicationState, model: int
) -> None:
    job = submit(anna, model).json()["id"]
    application.jobs.step(job, JobStatus.FAILED, "it broke", 1.0)
    first, again = anna.post(f"/api/v1/jobs/{job}/retry"), anna.post(f"/api/v1/jobs/{job}/retry")
    assert first.json()["id"] == again.json()["id"]


def test_pages(anna: TestClient, model: int) -> None:
    made = [submit(anna, model, seed=number).json()["id"] for number in range(5)]
    seen: list[str] = []
    after: str | None = None
    while True:
        page = anna.get("/api/v1/jobs", params={"limit": 2, **({"after": after} if after else {})}).json()
        seen += [job["id"] for job in page["jobs"]]
        after = page["next"]
        if after is None:
            break
    assert sorted(seen) == sorted(made)
    assert anna.get("/api/v1/jobs", params={"state": "done"}).json()["jobs"] == []
    assert anna.get("/api/v1/jobs", params={"state": "queued"}).json()["jobs"]
    assert anna.get("/api/v1/jobs", params={"after": "nonsense"}).status_code == 422
    assert anna.get("/api/v1/jobs", params={"after": "nan~x"}).status_code == 422


def test_what_is_not_there_yet_is_said_to_be_missing(anna: TestClient, model: int) -> None:
    job = submit(anna, model).json()["id"]
    answer = anna.get(f"/api/v1/jobs/{job}/executable")
    assert answer.status_code == 404
    assert "queued" in answer.json()["error"]


def test_a_result_is_fetched_under_the_model_s_name(
    anna: TestClient, application: ApplicationState, model: int
) -> None:
    job = submit(anna, model).json()["id"]
    for state in (JobStatus.CHECKING, JobStatus.PACKAGING):
        application.jobs.step(job, state, "", 1.0)
    file = application.blobs.put_bytes(b"program")
    application.jobs.step(job, JobStatus.DONE, "target met", 2.0, executable=file)
    answer = anna.get(f"/api/v1/jobs/{job}/executable")
    assert answer.content == b"program"
    assert 'filename="small.kt"' in answer.headers["content-disposition"]


def finished(application: ApplicationState, job: str) -> dict[str, str]:
    """Ends a job with files; returns their digests."""
    for state in (JobStatus.CHECKING, JobStatus.PACKAGING):
        application.jobs.step(job, state, "", 1.0)
    texts = {"executable": b"program", "log": b"said", "report": b'{"model": "small"}'}
    files = {name: application.blobs.put_bytes(text) for name, text in texts.items()}
    application.jobs.step(job, JobStatus.DONE, "target met", 2.0, latency_ms=1.5, **files)
    return files


def test_the_files_of_a_job_are_deleted_and_its_report_stays(
    anna: TestClient, application: ApplicationState, model: int
) -> None:
    job = submit(anna, model).json()["id"]
    refused = anna.delete(f"/api/v1/jobs/{job}/files")
    assert refused.status_code == 409
    assert refused.json()["error"] == f"job {job} is queued; its files can be deleted when it has ended"
    files = finished(application, job)
    before = anna.get(f"/api/v1/jobs/{job}").json()
    assert (before["has_result"], before["files_removed"]) == (True, None)
    for _ in range(2):  # an answer may have been lost
        assert anna.delete(f"/api/v1/jobs/{job}/files").status_code == 204
    after = anna.get(f"/api/v1/jobs/{job}").json()
    assert after == {**before, "has_result": False, "files_removed": NOW}
    assert anna.get(f"/api/v1/jobs/{job}/report").json() == {"model": "small"}
    assert [note.action for note in application.audit_log.read()][:2] == ["delete files", "submit"]
    assert application.jobs.files() == {files["report"]}
    assert anna.post(f"/api/v1/jobs/{job}/retry").status_code == 409


@pytest.mark.parametrize("what", ["executable", "export/wheel", "log", "report"])
def test_a_file_that_is_gone_from_the_store_is_named(
    anna: TestClient, application: ApplicationState, model: int, what: str
) -> None:
    job = submit(anna, model).json()["id"]
    application.jobs.step(job, JobStatus.CHECKING, "", NOW)
    files = {name: digit * 64 for name, digit in (("executable", "e"), ("log", "f"), ("report", "d"))}
    application.jobs.step(job, JobStatus.DONE, "", NOW, **files)
    answer = anna.get(f"/api/v1/jobs/{job}/{what}")
    digit = files[what.replace("export/wheel", "executable")][:12]
    assert (answer.status_code, answer.json()["error"]) == (503, f"file {digit} is gone from the store")


@pytest.mark.parametrize("what", ["executable", "export/wheel", "log"])
def test_who_asks_for_a_removed_file_is_told_when_that_was(
    anna: TestClient, application: ApplicationState, model: int, what: str
) -> None:
    job = submit(anna, model).json()["id"]
    finished(application, job)
    anna.delete(f"/api/v1/jobs/{job}/files")
    answer = anna.get(f"/api/v1/jobs/{job}/{what}")
    called = "log" if what == "log" else "executable"
    again = "" if what == "log" else "; a new job with its model makes it again from what was measured"
    assert answer.status_code == 410
    assert answer.json() == {"error": f"the {called} of job {job} was removed on 1970-01-12{again}", "kind": "Gone"}


def test_a_job_that_failed_is_retried_without_its_log(
    anna: TestClient, application: ApplicationState, model: int
) -> None:
    job = submit(anna, model).json()["id"]
    application.jobs.step(job, JobStatus.FAILED, "it broke", 1.0, log=application.blobs.put_bytes(b"said"))
    assert anna.delete(f"/api/v1/jobs/{job}/files").status_code == 204
    assert anna.get(f"/api/v1/jobs/{job}/log").status_code == 410
    assert anna.get(f"/api/v1/jobs/{job}/executable").status_code == 404  # it never had one
    assert anna.post(f"/api/v1/jobs/{job}/retry").json()["retry_of"] == job


def test_only_who_may_submit_deletes_files_of_their_own_jobs(
    anna: TestClient, client: Callable[..., TestClient], application: ApplicationState, model: int
) -> None:
    job = submit(anna, model).json()["id"]
    files = finished(application, job)
    assert client("anna", scope=Scope.READ).delete(f"/api/v1/jobs/{job}/files").status_code == 403
    assert client("boris").delete(f"/api/v1/jobs/{job}/files").status_code == 404
    assert application.jobs.files() == set(files.values())
    assert client("root", scope=Scope.ADMIN).delete(f"/api/v1/jobs/{job}/files").status_code == 204


def test_a_result_is_exported(anna: TestClient, application: ApplicationState, model: int, tmp_path: Path) -> None:
    job = submit(anna, model).json()["id"]
    for state in (JobStatus.CHECKING, JobStatus.PACKAGING):
        application.jobs.step(job, state, "", 1.0)
    assert anna.get(f"/api/v1/jobs/{job}/export/onnx").status_code == 404
    file = application.blobs.put(write_model(tmp_path / "toy.kt"))
    application.jobs.step(job, JobStatus.DONE, "target met", 2.0, executable=file)
    answer = anna.get(f"/api/v1/jobs/{job}/export/onnx")
    assert 'filename="small-onnx.zip"' in answer.headers["content-disposition"]
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert "small-onnx/small.onnx" in archive.namelist()
    again = anna.get(f"/api/v1/jobs/{job}/export/onnx", headers={"Range": "bytes=0-3"})
    assert (again.status_code, again.content) == (206, answer.content[:4])
    assert len(list(application.settings.exports.iterdir())) == 1
    assert anna.get(f"/api/v1/jobs/{job}/export/nonsense").status_code == 422


def test_a_job_tells_its_gain(anna: TestClient, application: ApplicationState, model: int) -> None:
    job = submit(anna, model).json()["id"]
    assert anna.get(f"/api/v1/jobs/{job}").json()["fastest_baseline"] is None
    fastest = FastestBaseline("onnxruntime", 2.0, 0.75)
    application.jobs.progressed(job, ProgressReport("profile", best_ms=1.5, fastest_baseline=fastest))
    (listed,) = anna.get("/api/v1/jobs").json()["jobs"]
    assert listed["latency_ms"] == 1.5
    assert listed["fastest_baseline"] == {"name": "onnxruntime", "ms": 2.0, "ratio": 0.75, "low": None, "high": None}


def test_events_of_a_job_that_is_over_end_at_once(anna: TestClient, application: ApplicationState, model: int) -> None:
    job = submit(anna, model).json()["id"]
    application.jobs.step(job, JobStatus.FAILED, "it broke", 1.0)
    text = anna.get(f"/api/v1/jobs/{job}/events").text
    assert text.startswith("event: job\n")
    assert "it broke" in text


def test_everything_is_in_the_audit_log(anna: TestClient, application: ApplicationState, model: int) -> None:
    job = submit(anna, model).json()["id"]
    anna.post(f"/api/v1/jobs/{job}/cancel")
    assert [note.action for note in application.audit_log.read()] == ["cancel", "submit", "upload"]
    assert {note.address for note in application.audit_log.read()} == {"127.0.0.1"}


def test_jobs_are_listed_with_their_owners(anna: TestClient, client: Callable[..., TestClient], model: int) -> None:
    job, boris = submit(anna, model).json()["id"], client("boris")
    submit(boris, upload(boris))
    assert anna.get(f"/api/v1/jobs/{job}").json()["owner"] == "anna"
    everybody = client("root", scope=Scope.ADMIN).get("/api/v1/jobs", params={"everybody": True}).json()["jobs"]
    assert sorted(each["owner"] for each in everybody) == ["anna", "boris"]


def test_what_a_job_has_only_at_its_end_is_waited_for(anna: TestClient, model: int) -> None:
    job = submit(anna, model).json()["id"]
    answer = anna.get(f"/api/v1/jobs/{job}/log")
    assert answer.status_code == 404
    assert answer.json()["error"] == f"job {job} has no log (it is queued); wait until the job has ended"


def test_a_body_that_is_too_large_is_refused_like_everything_else(anna: TestClient, model: int) -> None:
    answer = submit(anna, model, webhook="https://a.example/" + "x" * (2 << 20))
    assert (answer.status_code, answer.json()["error"]) == (413, "the request is larger than allowed")


def test_tolerances_and_inputs_to_compare_on_are_asked_for(anna: TestClient, model: int) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, x=np.zeros((1, 4), np.float32))
    inputs = anna.post("/api/v1/inputs", content=buffer.getvalue()).json()["id"]
    answer = submit(anna, model, rtol=0.01, atol=0.0, inputs=[inputs])
    assert answer.status_code == 201, answer.text
    wanted = anna.get(f"/api/v1/jobs/{answer.json()['id']}").json()["wanted"]
    assert (wanted["rtol"], wanted["atol"], wanted["inputs"]) == (0.01, 0.0, [inputs])
    refused = anna.delete(f"/api/v1/inputs/{inputs}")
    assert (refused.status_code, answer.json()["id"] in refused.json()["error"]) == (409, True)
    assert submit(anna, model, inputs=[inputs + 1000]).json()["error"] == f"there is no set of inputs {inputs + 1000}"
    assert submit(anna, model, rtol=-1.0).status_code == 422


def test_jobs_are_searched(anna: TestClient, model: int) -> None:
    job, other = (submit(anna, each).json()["id"] for each in (model, upload(anna, name="other.onnx")))
    assert job != other

    def found(**parameters: object) -> list[str]:
        answer = anna.get("/api/v1/jobs", params=parameters)
        assert answer.status_code == 200
        return [each["id"] for each in answer.json()["jobs"]]

    assert found(text=job) == [job]
    assert sorted(found(device="local-cpu", model=model)) == sorted([other, job])  # the same file is the same model
    assert found(device="pi5") == found(text="nothing") == found(model=model + 1) == []
    assert anna.get("/api/v1/jobs", params={"model": 0}).status_code == 422


def test_each_face_is_answered_in_its_words(anna: TestClient, application: ApplicationState, model: int) -> None:
    job = submit(anna, model).json()["id"]
    application.jobs.step(job, JobStatus.FAILED, "this CPU lacks bf16; leave --precision out", 10.0, refused=True)
    path, command = f"/api/v1/jobs/{job}", {"Kintune-Face": "command"}
    assert anna.get(path).json()["reason"] == "this CPU lacks bf16; leave precision out"
    found = anna.get(path, headers=command).json()
    assert (found["reason"], found["refused"]) == ("this CPU lacks bf16; leave --precision out", True)
    assert found["steps"][-1]["reason"] == found["reason"]


def test_a_precision_that_the_device_lacks_is_refused_in_the_words_of_each_face(anna: TestClient, model: int) -> None:
    wanted = {"model": model, "wanted": {"precision": "bf16"}}
    refused = anna.post("/api/v1/jobs", json=wanted)
    assert refused.status_code == 422
    assert refused.json()["error"].endswith("; leave precision out")
    by_command = anna.post("/api/v1/jobs", json=wanted, headers={"Kintune-Face": "command"})
    assert by_command.json()["error"].endswith("; leave --precision out")
    assert anna.get("/api/v1/jobs").json()["jobs"] == []
    assert list(anna.get("/api/v1/resources").json()["lacks"]["local-cpu"]) == ["bf16"]
