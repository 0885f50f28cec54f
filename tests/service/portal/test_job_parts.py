from __future__ import annotations

import msgspec
import pytest

from kintune.service.job_repository import Job
from kintune.service.job_request import JobRequest
from kintune.service.job_status import JobStatus
from kintune.service.portal.job_parts import failures, flags, log_part, removed_files, stand, webhook_part
from kintune.service.webhook_outcome import WebhookOutcome
from tests.support.reports import example_report

JOB = Job("a1", 1, 1, JobRequest(), 1.0, None, JobStatus.QUEUED, "", None, None, None, None, None, 1.0, None, None)


@pytest.mark.parametrize(
    ("state", "reason", "doing", "said"),
    [
        (JobStatus.QUEUED, "", "", "waiting for its turn"),
        (JobStatus.QUEUED, "waits for a device of type pi5", "", "waits for a device of type pi5"),
        (JobStatus.PACKAGING, "already met by what is known", "", "waiting for its turn"),
        (JobStatus.PACKAGING, "already met by what is known", "prove on cpu", "prove on cpu"),
    ],
)
def test_a_job_says_what_it_does_or_waits_for(state: JobStatus, reason: str, doing: str, said: str) -> None:
    job = msgspec.structs.replace(JOB, state=state, reason=reason)
    assert f"Now: {said}<" in stand(job, "", doing, "pi5")


@pytest.mark.parametrize("log", [None, "0" * 64])
def test_a_failure_leads_to_the_log_if_there_is_one(log: str | None) -> None:
    said = failures(msgspec.structs.replace(JOB, state=JobStatus.FAILED, reason="no device", log=log), 64)
    assert "What it measured is kept (64 programs); it can be tried again." in said
    assert ("The log below" in said) is (log is not None)


def test_a_failure_before_anything_was_measured_promises_nothing() -> None:
    reason = "precision bf16: Xeon has no instructions for bfloat16; leave --precision out"
    said = failures(msgspec.structs.replace(JOB, state=JobStatus.FAILED, reason=reason, refused=True), 0)
    assert "It failed: precision bf16: Xeon has no instructions for bfloat16<" in said
    assert "Nothing was measured yet; the same again would fail likewise: change the request." in said


def test_what_came_of_a_webhook_is_told_in_words() -> None:
    said = webhook_part([WebhookOutcome("https://a.example/<x>", 2, "answered 500", 5.0)])
    assert "The webhook https://a.example/&lt;x&gt;: answered 500, call 2; it will be called again." in said
    assert webhook_part([]) == ""


def test_what_is_uncertain_or_was_not_compared_is_listed() -> None:
    said = flags(example_report(uncertain=("5 to 9 ms",), not_compared=("y: <NaN>", "z")))
    assert "<strong>Uncertain</strong><ul><li>5 to 9 ms</li></ul>" in said
    assert "<li>y: &lt;NaN&gt;</li><li>z</li>" in said
    assert flags(example_report()) == ""


def test_a_job_says_when_its_files_were_removed() -> None:
    done = msgspec.structs.replace(JOB, state=JobStatus.DONE, report="0" * 64)
    assert removed_files(done, "net") == ""
    assert "It has no log." in log_part(done, "", is_cut=False)
    done = msgspec.structs.replace(done, files_removed=86400.0)
    said = removed_files(done, "net")
    assert "Its executable and its log were removed on 1970-01-02 00:00:00 UTC." in said
    assert 'download="net.report.json"' in said
    assert "The log was removed." in log_part(done, "", is_cut=False)
    failed = removed_files(msgspec.structs.replace(done, state=JobStatus.FAILED), "net")
    assert "Its log was removed on 1970-01-02 00:00:00 UTC." in failed
    assert "executable" not in failed
