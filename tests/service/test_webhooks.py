from __future__ import annotations

import socket
from typing import Any

import pytest

from kintune.records.database import Database
from kintune.service.access import Visitor
from kintune.service.job_repository import Job, JobRepository
from kintune.service.job_request import JobRequest
from kintune.service.job_status import JobStatus
from kintune.service.model_store import ModelStore
from kintune.service.webhooks import Webhook, Webhooks, choose_calls, public_address, why_blocked


@pytest.fixture
def job(database: Database, anna: Visitor) -> Job:
    model = ModelStore(database).add(anna.user, "net.onnx", "0" * 64, 5, 100.0, None).id
    return JobRepository(database).submit(anna, model, JobRequest(webhook="https://a.example/done"), 1000.0)[0]


def test_a_call_is_due_until_it_was_heard(database: Database, job: Job) -> None:
    calls = Webhooks(database)
    assert calls.next_due(0.0) is None
    calls.ask(job, 10.0)
    (call,) = calls.due(10.0)
    assert (call.job, call.url, call.attempts) == (job.id, "https://a.example/done", 0)
    calls.made(call, "answered 200", 11.0, succeeded=True)
    assert calls.due(1e9) == []


def test_one_that_nobody_hears_is_tried_again_later_and_later(database: Database, job: Job) -> None:
    calls, now, waits = Webhooks(database), 0.0, []
    calls.ask(job, 10.0)
    while (due := calls.next_due(now)) is not None:
        waits.append(due - now)
        now = due
        (call,) = calls.due(now)
        calls.made(call, "answered 500", now, succeeded=False)
    assert waits == [10.0, 10.0, 60.0, 600.0, 3600.0, 21600.0]


def test_no_owner_keeps_the_others_out_of_what_is_due(
    database: Database, anna: Visitor, boris: Visitor, job: Job
) -> None:
    calls, models, jobs = Webhooks(database), ModelStore(database), JobRepository(database)
    theirs = models.add(boris.user, "net.onnx", "1" * 64, 5, 100.0, None).id
    other, _ = jobs.submit(boris, theirs, JobRequest(webhook="https://b.example/done"), 1000.0)
    for now in (10.0, 11.0, 12.0):
        calls.ask(job, now)
    calls.ask(other, 13.0)
    due = calls.due(13.0, most=2)
    assert [(call.owner, call.host) for call in due] == [
        (anna.user, "a.example"), (anna.user, "a.example"), (boris.user, "b.example"),
    ]  # fmt: skip


def called(id: int, owner: int, host: str) -> Webhook:
    return Webhook(id, f"j{id}", owner, f"https://{host}/done", 0)


def test_two_calls_of_an_owner_to_a_host_are_made_at_once() -> None:
    due = [called(id, 1, "slow.example") for id in range(5)] + [called(5, 2, "slow.example"), called(6, 1, "other")]
    assert [call.id for call in choose_calls(due, [])] == [0, 1, 5, 6]
    assert [call.id for call in choose_calls(due, due[:1])] == [1, 5, 6]
    assert choose_calls(due, [due[id] for id in (0, 1, 5, 6)]) == []


def test_twenty_calls_are_made_at_once() -> None:
    due = [called(id, id, "a.example") for id in range(30)]
    assert choose_calls(due, []) == due[:20]
    assert choose_calls(due, due[5:10]) == due[:5] + due[10:20]


def resolving_to(*addresses: str) -> Any:
    def getaddrinfo(host: str, port: int, **_: object) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    return getaddrinfo


@pytest.mark.parametrize(
    "addresses",
    [["127.0.0.1"], ["10.1.2.3"], ["192.168.0.1"], ["169.254.169.254"], ["::1"], ["fd00::1"], ["8.8.8.8", "10.0.0.1"],
     ["0.0.0.0"], ["224.0.0.1"], ["::ffff:127.0.0.1"], []],
)  # fmt: skip
def test_private_addresses_are_none_to_call(monkeypatch: pytest.MonkeyPatch, addresses: list[str]) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", resolving_to(*addresses))
    assert public_address("https://a.example/x") is None


def test_a_public_address_is_the_one_to_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", resolving_to("8.8.8.8"))
    assert public_address("https://a.example/x") == "8.8.8.8"


def test_a_name_that_means_nothing_is_no_address() -> None:
    assert public_address("https://nothing.invalid/x") is None


def test_a_character_that_postgresql_refuses_is_replaced(database: Database, job: Job) -> None:
    calls = Webhooks(database)
    calls.ask(job, 10.0)
    (call,) = calls.due(10.0)
    calls.made(call, "answered \0", 11.0, succeeded=False)
    assert JobRepository(database).step(job.id, JobStatus.FAILED, "it said \0", 12.0).reason.startswith("it said ")


def test_what_became_of_the_calls_of_a_job_is_told(database: Database, job: Job) -> None:
    calls = Webhooks(database)
    assert calls.of_job(job.id) == []
    calls.ask(job, 10.0)
    assert calls.of_job(job.id)[0].words == "the webhook https://a.example/done is about to be called"
    for _ in range(2):
        calls.made(calls.due(1e9)[0], "answered 500", 11.0, succeeded=False)
    said = "the webhook https://a.example/done: answered 500, call 2; it will be called again"
    assert calls.of_job(job.id)[0].words == said
    calls.made(calls.due(1e9)[0], "answered 200", 11.0, succeeded=True)
    assert calls.of_job(job.id)[0].words == "the webhook https://a.example/done: answered 200, call 3"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://127.0.0.1:1/", "127.0.0.1 is not on the public internet"),
        ("http://[::1]/", "::1 is not on the public internet"),
        ("http://169.254.169.254/latest", "169.254.169.254 is not on the public internet"),
        ("http://10.1.2.3/", "10.1.2.3 is not on the public internet"),
        ("http://8.8.8.8/", None),
    ],
)
def test_an_address_that_is_not_public_is_blocked(url: str, why: str | None) -> None:
    assert why_blocked(url) == why


@pytest.mark.parametrize(
    ("error", "why"), [(socket.EAI_NONAME, "the name nowhere.example is not known"), (socket.EAI_AGAIN, None)]
)
def test_a_name_that_cannot_be_looked_up_for_now_is_not_blocked(
    monkeypatch: pytest.MonkeyPatch, error: int, why: str | None
) -> None:
    def fails(*_: object, **__: object) -> Any:
        raise socket.gaierror(error, "?")

    monkeypatch.setattr(socket, "getaddrinfo", fails)
    assert why_blocked("https://nowhere.example/done") == why
