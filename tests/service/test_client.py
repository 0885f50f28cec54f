from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import uvicorn

from kintune.errors import InputError, JobFailed
from kintune.service.client import Client, ServiceError
from kintune.service.job_status import JobCommand, JobStatus
from kintune.service.orchestrator.events import Changed, EventBus
from kintune.service.settings import ServiceSettings
from kintune.service.web.app import make_app
from kintune.service.web.application_state import ApplicationState
from tests.support.service_users import dynamic_onnx


class Server:
    """The web part in a thread, and the orchestrator's end of its line."""

    def __init__(self, place: Path) -> None:
        data = place / "data"
        data.mkdir()
        self.application = ApplicationState(ServiceSettings(data=str(data)))
        self.poked = threading.Event()
        self.bus = EventBus(self.application.settings.socket, self.poked.set)
        config = uvicorn.Config(make_app(self.application), port=0, log_config=None, timeout_graceful_shutdown=2)
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run)
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)
        port = self.server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"

    def close(self) -> None:
        self.server.should_exit = True
        self.thread.join()
        self.bus.close()
        self.application.__exit__(None, None, None)

    def step(self, job: str, state: JobStatus, reason: str = "", **files: str) -> None:
        self.application.jobs.step(job, state, reason, time.time(), **files)
        self.bus.publish(Changed(job, state, reason))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path)
    yield made
    made.close()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "net.onnx"
    path.write_bytes(dynamic_onnx().SerializeToString())
    return path


class LosesAnswers(httpx.BaseTransport):
    """Passes every request on, and loses the answer to the first POST of each path."""

    def __init__(self) -> None:
        self.inner = httpx.HTTPTransport()
        self.lost: set[str] = set()

    def close(self) -> None:
        self.inner.close()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = self.inner.handle_request(request)
        if request.method == "POST" and request.url.path not in self.lost:
            self.lost.add(request.url.path)
            answer.read()
            raise httpx.ReadError("the line broke")
        return answer


def test_what_is_asked_twice_for_lost_answers_is_done_once(server: Server, model: Path) -> None:
    with Client(server.url, transport=LosesAnswers()) as client:
        job = client.submit(client.upload(model)["id"], shapes={"x": [1, 4]})
        assert [one["id"] for one in client.jobs()] == [job["id"]]
        server.step(job["id"], JobStatus.FAILED, "broke")
        again = client.retry(job["id"])
        assert {one["id"] for one in client.jobs()} == {job["id"], again["id"]}


class EndsJobs(LosesAnswers):
    """Loses answers, and brings the job into a state before the second try."""

    def __init__(self, server: Server, state: JobStatus) -> None:
        super().__init__()
        self.server, self.state = server, state

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        try:
            return super().handle_request(request)
        except httpx.ReadError:
            *_, job, command = request.url.path.split("/")
            if command in ("cancel", "finish"):
                self.server.step(job, self.state)
            raise


@pytest.mark.parametrize(
    ("command", "state"),
    [("cancel", JobStatus.CANCELLED), ("finish", JobStatus.PACKAGING), ("finish", JobStatus.DONE)],
)
def test_a_command_whose_answer_is_lost_was_carried_out(
    server: Server, model: Path, command: str, state: JobStatus
) -> None:
    with Client(server.url, transport=EndsJobs(server, state)) as client:
        job = client.submit(client.upload(model)["id"], shapes={"x": [1, 4]})["id"]
        for before in (JobStatus.CHECKING, JobStatus.TUNING):
            server.step(job, before)
        assert getattr(client, command)(job)["state"] == state.value
        with pytest.raises(InputError, match="there is nothing to"):
            getattr(client, command)(job)


def test_a_command_that_was_refused_is_refused_after_a_lost_answer(server: Server, model: Path) -> None:
    with Client(server.url, transport=LosesAnswers()) as client:
        job = client.submit(client.upload(model)["id"], shapes={"x": [1, 4]})["id"]
        with pytest.raises(InputError, match="is queued: there is nothing to finish"):
            client.finish(job)


def test_an_upload_is_waited_for_as_long_as_it_is_inspected(model: Path, tmp_path: Path) -> None:
    (tmp_path / "one.npz").write_bytes(b"arrays")
    waits: dict[str, float] = {}

    def answer(request: httpx.Request) -> httpx.Response:
        waits[request.url.path] = request.extensions["timeout"]["read"]
        return httpx.Response(200, json={"findings": None, "jobs": []})

    with Client("http://service", transport=httpx.MockTransport(answer)) as client:
        client.upload(model)
        client.upload_inputs(tmp_path / "one.npz")
        client.jobs()
    assert waits == {"/api/v1/models": 600.0, "/api/v1/inputs": 600.0, "/api/v1/jobs": 60.0}


def test_a_job_is_finished_and_given_another_priority(server: Server, model: Path) -> None:
    with Client(server.url) as client:
        job = client.submit(client.upload(model)["id"], shapes={"x": [1, 4]})["id"]
        server.step(job, JobStatus.CHECKING, "because")
        server.step(job, JobStatus.TUNING, "because")
        assert client.prioritize(job, 2.5)["id"] == client.finish(job)["id"] == job
        asked = server.application.jobs.pending_commands()
        assert [(each.command, each.value) for each in asked] == [
            (JobCommand.PRIORITY, 2.5),
            (JobCommand.FINISH, None),
        ]
        with pytest.raises(InputError):
            client.prioritize(job, 0.0)


def test_submitting_pokes_the_orchestrator(server: Server, model: Path) -> None:
    assert server.poked.wait(10)  # whoever answers is poked once
    server.poked.clear()
    with Client(server.url) as client:
        client.submit(client.upload(model)["id"], shapes={"x": [1, 4]})
    assert server.poked.wait(10)


def test_waiting_shows_how_it_goes_and_answers_with_the_job(server: Server, model: Path) -> None:
    with Client(server.url) as client:
        job = client.submit(client.upload(model)["id"], shapes={"x": [1, 4]})["id"]
        heard: list[str] = []

        def on_news(kind: str, data: dict[str, object]) -> None:
            heard.append(str(data.get("state")))
            if heard[-1] in ("queued", "checking"):
                server.step(job, JobStatus.CHECKING if heard[-1] == "queued" else JobStatus.DONE, "because")

        assert client.wait(job, on_news)["reason"] == "because"
        assert heard == ["queued", "checking", "done", "done"]


def test_waiting_for_one_that_fails_raises_its_reason(server: Server, model: Path) -> None:
    with Client(server.url) as client:
        job = client.submit(client.upload(model)["id"], shapes={"x": [1, 4]})["id"]
        server.step(job, JobStatus.FAILED, "operator Foo is unknown")
        with pytest.raises(JobFailed, match="operator Foo"):
            client.wait(job)


def test_a_result_is_downloaded(server: Server, model: Path, tmp_path: Path) -> None:
    with Client(server.url) as client:
        job = client.submit(client.upload(model)["id"], shapes={"x": [1, 4]})["id"]
        server.step(job, JobStatus.CHECKING)
        server.step(job, JobStatus.DONE, "converged", executable=server.application.blobs.put_bytes(b"program"))
        (tmp_path / "net.report.json").write_text("of another one")
        assert client.download(job, tmp_path / "net.kt").read_bytes() == b"program"
        assert not (tmp_path / "net.report.json").exists()
        with pytest.raises(InputError, match="has no log"):
            client.download(job, tmp_path / "log", "log")


def test_a_model_that_cannot_be_used_is_refused(server: Server, tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"nonsense")
    with Client(server.url) as client:
        with pytest.raises(InputError, match=r"broken\.onnx: it is no ONNX file"):
            client.upload(tmp_path / "broken.onnx")
        with pytest.raises(InputError, match="does not exist"):
            client.upload(tmp_path / "missing.onnx")


def test_what_is_wrong_is_named(server: Server, model: Path) -> None:
    with Client(server.url) as client:
        number = client.upload(model)["id"]
        with pytest.raises(InputError, match=r"wanted\.minutes"):
            client.submit(number, minutes="long")
        with pytest.raises(InputError, match="there is no model 999"):
            client.submit(999)


def test_a_service_that_is_started_again_is_watched_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    answers = iter(
        [
            httpx.Response(503, json={"error": "the database is away", "kind": "StorageError"}),
            httpx.Response(200, text='event: job\ndata: {"state": "done"}\n\n'),
        ]
    )
    with Client("http://service", transport=httpx.MockTransport(lambda request: next(answers))) as client:
        assert list(client.watch("j1")) == [("job", {"state": "done"})]


def test_a_service_that_is_not_there_is_said_to_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    with Client("http://127.0.0.1:9") as client, pytest.raises(ServiceError, match="is `kintune serve` running there"):
        client.jobs()


def test_who_watches_a_service_that_is_not_there_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    with Client("http://127.0.0.1:9") as client, pytest.raises(ServiceError, match="is `kintune serve` running there"):
        client.wait("j1")


def test_a_watched_line_that_breaks_is_taken_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    told = iter(["queued", "", "", "", "", "", "done"])

    def answer(request: httpx.Request) -> httpx.Response:
        state = next(told)
        if not state:
            raise httpx.ConnectError("away", request=request)
        return httpx.Response(200, text=f'event: job\ndata: {{"state": "{state}"}}\n\n')

    with Client("http://service", transport=httpx.MockTransport(answer)) as client:
        assert [data["state"] for _, data in client.watch("j1")] == ["queued", "done"]


@pytest.mark.parametrize(
    "address", ["localhost:8190", "http://[::1", "ftp://host", "http://", "http://host:port", "service", "http://a b"]
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(InputError, match="is no address of a service; name it as http://HOST:PORT"):
        Client(address)


@pytest.mark.parametrize("token", ["kt_\u00e4", "kt_\u2026", "kt_a\nkt_b", "kt a"])
def test_what_is_no_token_is_refused(token: str) -> None:
    with pytest.raises(InputError, match="characters that no token has"):
        Client("http://127.0.0.1:9", token)


def test_an_address_may_have_a_path_and_a_token_a_line_end() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json={"jobs": []})

    with Client("https://host/kintune/", "kt_a\n", httpx.MockTransport(answer)) as client:
        assert client.jobs() == []
    assert str(seen[0].url.copy_with(query=None)) == "https://host/kintune/api/v1/jobs"
    assert seen[0].headers["Authorization"] == "Bearer kt_a"


def answering(status: int, **more: Any) -> Client:
    """A client of something that answers everything like this."""
    return Client("http://service", transport=httpx.MockTransport(lambda request: httpx.Response(status, **more)))


def test_lists_are_read_page_by_page() -> None:
    asked: list[dict[str, str]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(dict(request.url.params))
        begin, count = int(asked[-1].get("after", 0)), int(asked[-1]["limit"])
        ids = list(range(begin, min(begin + count, 450)))
        following = ids[-1] + 1 if len(ids) == count else None
        return httpx.Response(200, json={"jobs": [{"id": each} for each in ids], "next": following})

    with Client("http://service", transport=httpx.MockTransport(answer)) as client:
        assert [job["id"] for job in client.jobs(limit=1000, state="done")] == list(range(450))
        assert [(each["state"], each["limit"], each.get("after")) for each in asked] == [
            ("done", "200", None),
            ("done", "200", "200"),
            ("done", "200", "400"),
        ]
        asked.clear()
        assert len(client.jobs(limit=201)) == 201
        assert [each["limit"] for each in asked] == ["200", "1"]


def test_uploads_are_listed_and_deleted(server: Server, model: Path) -> None:
    np.savez(model.with_name("first.npz"), x=np.zeros((1, 4), np.float32))
    with Client(server.url) as client:
        number = client.upload(model)["id"]
        (inputs,) = (each["id"] for each in client.upload_inputs(model.with_name("first.npz")))
        assert ([each["id"] for each in client.models()], [each["id"] for each in client.inputs()]) == (
            [number],
            [inputs],
        )
        assert client.user()["used"]["storage_mb"] == 0.0  # of some hundred bytes
        client.delete_model(number)
        client.delete_inputs(inputs)
        assert (client.models(), client.inputs()) == ([], [])
        with pytest.raises(InputError, match=f"there is no model {number}"):
            client.delete_model(number)


def test_what_was_deleted_by_a_try_whose_answer_was_lost_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    answers = iter([httpx.Response(503), httpx.Response(404, json={"error": "there is no model 5"})])
    with Client("http://service", transport=httpx.MockTransport(lambda request: next(answers))) as client:
        client.delete_model(5)


@pytest.mark.parametrize("job", ["", "../models", "a?b", "a#b", "a/b", "jöb"])
def test_what_is_no_id_of_a_job_is_refused(job: str) -> None:
    with answering(500) as client:
        for ask in (client.job, client.cancel, client.report, client.wait, lambda job: client.download(job, "x.kt")):
            with pytest.raises(InputError, match="is no id of a job; `kintune jobs` lists yours"):
                ask(job)


def test_a_service_that_has_moved_is_said_to_be_elsewhere(tmp_path: Path) -> None:
    with answering(308, headers={"Location": "https://service/api/v1/jobs/j1"}) as client:
        for ask in (client.job, client.wait, lambda job: client.download(job, tmp_path / "x.kt")):
            with pytest.raises(InputError, match="http://service has moved to https://service; name that address"):
                ask("j1")
    assert list(tmp_path.iterdir()) == []


def test_another_server_is_said_to_be_no_service() -> None:
    with answering(200, html="<p>Welcome</p>") as client:
        for ask in (client.job, client.wait):
            with pytest.raises(ServiceError, match="does not answer as a service of Kintune; is the address right"):
                ask("j1")
    for answer in ({}, [], {"jobs": 3}):
        with answering(200, json=answer) as client, pytest.raises(ServiceError, match="as a service of Kintune"):
            client.jobs()
    news = "event: job\ndata: nonsense\n\n"
    with answering(200, text=news) as client, pytest.raises(ServiceError, match="as a service of Kintune"):
        client.wait("j1")
    with answering(404, json={"detail": "Not Found"}) as client, pytest.raises(InputError, match=r"404 \(Not Found\)"):
        client.job("j1")


def test_who_has_no_valid_token_is_told_how_to_give_one() -> None:
    said = r"--token \(in Python token=...\) or \$KINTUNE_TOKEN"
    with answering(401, json={"error": "this takes a valid token"}) as client, pytest.raises(InputError, match=said):
        client.jobs()


def test_an_export_is_waited_for_and_has_the_name_that_the_service_gives_it(tmp_path: Path) -> None:
    waited: list[float] = []

    def answer(request: httpx.Request) -> httpx.Response:
        waited.append(request.extensions["timeout"]["read"])
        named = 'attachment; filename="../net-1-py3-none-any.whl"'
        return httpx.Response(200, content=b"wheel", headers={"Content-Disposition": named})

    with Client("http://service", transport=httpx.MockTransport(answer)) as client:
        made = client.download("j1", tmp_path, "export/wheel")
        assert (made, made.read_bytes()) == (tmp_path / "net-1-py3-none-any.whl", b"wheel")
        assert client.download("j1", tmp_path / "net.kt") == tmp_path / "net.kt"
    assert waited[0] > waited[1]
    with answering(200, content=b"text") as client:
        assert client.download("j1", tmp_path, "log") == tmp_path / "j1"


def test_a_download_from_a_service_that_is_not_there(tmp_path: Path) -> None:
    with Client("http://127.0.0.1:9") as client, pytest.raises(ServiceError, match="is `kintune serve` running there"):
        client.download("j1", tmp_path / "net.kt")
