"""Commands about jobs at a service, which is made up here."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from kintune.errors import InputError
from tests.support.reports import example_report
from tests.support.stand_in_client import StandInClient

if TYPE_CHECKING:
    from tests.support.command import Kintune


def job(state: str = "tuning", **more: Any) -> dict[str, Any]:
    return {"id": "j1", "state": state, "reason": "", "created": 0.0, "priority": 1.0, "progress": None, **more}


class FakeClient(StandInClient):
    """A service with one job; notes what it is asked."""

    def __init__(self) -> None:
        self.log = "[job 0123456789ab] started as process 7: python -m job\n[job 0123456789ab] \x1b[2Jgone\n"
        self.document: Any = msgspec.to_builtins(example_report(output="net.kt", log=None))
        self.found = job()
        self.asked: list[Any] = []
        self.refused: tuple[str, ...] = ()
        self.on_wait: Callable[[], None] = lambda: None

    def download(self, job: str, path: Path, what: str = "executable") -> Path:
        assert what == "log"
        path.write_text(self.log)
        return path

    def report(self, job: str) -> Any:
        return self.document

    def job(self, job: str) -> dict[str, Any]:
        return self.found

    def jobs(self, **wanted: Any) -> list[dict[str, Any]]:
        self.asked.append(wanted)
        return [self.found]

    def finish(self, job: str) -> dict[str, Any]:
        return self.found

    def cancel(self, job: str) -> dict[str, Any]:
        return {**self.found, "state": "cancelled"}

    def delete_files(self, job: str) -> None:
        if job in self.refused:
            raise InputError(f"job {job} is tuning; its files can be deleted when it has ended")
        self.asked.append(("delete files", job))

    def prioritize(self, job: str, priority: float) -> dict[str, Any]:
        return self.found

    def wait(self, job: str, on_news: Any) -> dict[str, Any]:
        self.on_wait()
        return self.found


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    made = FakeClient()
    monkeypatch.setattr("kintune.cli.jobs.CommandClient", made)
    return made


def test_a_log_is_printed_without_what_all_its_lines_begin_with(kintune: Kintune, service: FakeClient) -> None:
    said = kintune("job", "logs", "j1")
    assert (said.code, said.out) == (0, "started as process 7: python -m job\n [2Jgone\n")
    service.log = ""
    assert kintune("job", "logs", "j1").out == "The log is empty.\n"


def test_a_log_is_a_document(kintune: Kintune, service: FakeClient) -> None:
    said = kintune("job", "logs", "j1", "--json", "-")
    lines = ["started as process 7: python -m job", "\x1b[2Jgone"]
    assert json.loads(said.out) == {"schema_version": 1, "job": "j1", "lines": lines}
    assert said.err.startswith("started as process 7")


def test_the_report_of_a_job_is_shown(kintune: Kintune, service: FakeClient, tmp_path: Path) -> None:
    said = kintune("job", "report", "j1", "--html", tmp_path / "page.html", "--json", tmp_path / "report.json")
    assert said.code == 0
    assert said.out.startswith("resnet18: 15.0 ms, 1.08x as fast as onnxruntime")
    assert "Next: kintune job download j1 --output net.kt\n" in said.out
    assert "The executable is" not in said.out  # it is at the service
    assert json.loads((tmp_path / "report.json").read_text())["output"] == "net.kt"
    assert "resnet18" in (tmp_path / "page.html").read_text()
    service.found = job("done", files_removed=86400.0)
    said = kintune("job", "report", "j1")
    assert "The files of job j1 were deleted on 1970-01-02.\nNext: kintune submit" in said.out
    assert "download" not in said.out


def test_a_result_or_an_export_of_it_is_downloaded(
    kintune: Kintune, service: FakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def download(job: str, path: str, what: str = "executable") -> str:
        service.asked.append(what)
        return path

    monkeypatch.setattr(service, "download", download)
    assert kintune("job", "download", "j1", "--output", "net.kt").out == "The executable is net.kt\n"
    assert kintune("job", "download", "j1", "--to", "wheel", "--output", ".").out == "The export is .\n"
    assert service.asked == ["executable", "export/wheel"]


def test_a_report_of_another_version_is_one_line(kintune: Kintune, service: FakeClient) -> None:
    service.document = {"schema_version": 99}
    said = kintune("job", "report", "j1")
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert "job j1: is no report of this version of Kintune" in said.err


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("finish", "j1"), "The service has accepted the request: the job ends with the best result so far.\n"),
        (("priority", "j1", "2.5"), "The service has accepted the request: the job gets priority 2.5.\n"),
    ],
)
def test_a_command_that_takes_a_while_is_said_to_be_accepted(
    kintune: Kintune, service: FakeClient, command: tuple[str, ...], said: str
) -> None:
    assert kintune("job", *command).out.endswith(said)
    assert "accepted" not in kintune("job", "cancel", "j1").out  # it is over already


def test_a_job_tells_its_priority_and_what_it_takes(kintune: Kintune, service: FakeClient) -> None:
    service.found = job(
        "done", model_name="net", wanted={"device": "pi5"}, priority=2.0, latency_ms=2.0, steps=[],
        fastest_baseline={"name": "onnxruntime", "ms": 2.5, "ratio": 0.8},
    )  # fmt: skip
    first, second = kintune("job", "show", "j1").out.splitlines()
    assert first == "net on pi5, priority 2"
    assert second.endswith("ago  2.00 ms, 0.80 of onnxruntime's 2.50 ms")


def test_jobs_of_all_users_are_listed_with_their_users(kintune: Kintune, service: FakeClient) -> None:
    service.found = job(model_name="net", owner="boris")
    said = kintune("jobs", "--everybody", "--limit", "500", "--state", "done")
    assert said.out.split()[:3] == ["job", "model", "user"]
    assert said.out.splitlines()[1].split()[:3] == ["j1", "net", "boris"]
    assert service.asked == [{"state": ["done"], "everybody": True, "limit": 500}]
    assert "boris" not in kintune("jobs").out
    kintune("jobs", "--search", "resnet pi5")
    assert service.asked[-1]["text"] == "resnet pi5"


def test_a_state_that_there_is_not_is_refused_with_those_that_there_are(kintune: Kintune, service: FakeClient) -> None:
    said = kintune("jobs", "--state", "running")
    assert (said.code, service.asked) == (2, [])
    assert "'queued', 'checking', 'tuning'" in said.err


def test_who_stops_watching_is_told_that_the_job_goes_on(kintune: Kintune, service: FakeClient) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    service.on_wait = interrupt
    said = kintune("job", "watch", "j1")
    assert said.code == 130
    assert said.out == "job j1 goes on: kintune job watch j1 shows it, kintune job cancel j1 ends it\n"


def test_the_files_of_a_job_are_deleted(kintune: Kintune, service: FakeClient) -> None:
    service.found = job("done", model_name="net", wanted={"device": "pi5"}, steps=[], files_removed=86400.0)
    said = kintune("job", "delete-files", "j1", "--json", "-")
    assert (said.code, said.err) == (0, "The files of job j1 are deleted.\n")
    assert [each["files_removed"] for each in json.loads(said.out)["jobs"]] == [86400.0]
    assert service.asked == [("delete files", "j1")]
    shown = kintune("job", "show", "j1").out
    assert shown.endswith("\n  1970-01-02 00:00:00+00:00  its files were removed\n")


def test_the_files_of_several_jobs_are_deleted_and_refused_jobs_are_named(
    kintune: Kintune, service: FakeClient
) -> None:
    service.refused = ("j2", "j4")
    said = kintune("job", "delete-files", "j1", "j2", "j3", "j4", "j1")
    assert (said.code, said.out) == (2, "The files of job j1 are deleted.\n" * 2)  # this service knows one job
    assert service.asked == [("delete files", "j1"), ("delete files", "j3")]
    assert said.err.count("\n") == 1
    assert "job j2 is tuning; its files can be deleted when it has ended; job j4 is tuning; its files" in said.err
    assert kintune("job", "delete-files").code == 2
