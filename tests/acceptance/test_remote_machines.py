"""A service and machines that join it: real processes, real sockets, one machine that plays several."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kintune.hardware.cores import physical_cores
from kintune.service.client import Client
from kintune.testing.serving import Serving, serving
from tests.support.paper_gpu import build_paper_gpu
from tests.support.stock_rpc import stock_rpc

pytestmark = [pytest.mark.tvm, pytest.mark.timeout(600)]

NETWORK = Path(__file__).parents[2] / "benchmarks/one_layer.onnx"


class Fleet:
    """A service on the first core of this machine, and what joins it on the second."""

    def __init__(self, service: Serving, door: str, folder: Path) -> None:
        self.service = service
        self.door = door
        self._folder = folder
        self._started: list[subprocess.Popen[bytes]] = []

    def token(self) -> Path:
        """A file with a token for a machine."""
        command = ("service", "add-token", "--data", str(self.service.data), "--user", "op", "--scope", "machine")
        made = subprocess.run([sys.executable, "-m", "kintune", *command], capture_output=True, check=True)
        file = self._folder / f"token-{len(list(self._folder.glob('token-*')))}"
        file.write_bytes(made.stdout)
        return file

    def start(self, *arguments: str, token: Path | None = None) -> Machine:
        """Start a `kintune` that joins."""
        file = token or self.token()
        said = self._folder / f"said-{len(self._started)}"
        with said.open("wb") as err, pinned({physical_cores()[1]}):
            process = subprocess.Popen(
                [sys.executable, "-m", "kintune", *arguments, "--service", self.door, "--token-file", str(file)],
                env={**os.environ, "KINTUNE_LOCK_DIR": str(self._folder / f"locks-{len(self._started)}")},
                stderr=err,
            )
        self._started.append(process)
        return Machine(process, said)

    def close(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
                process.wait()


class Machine:
    """One that joins."""

    def __init__(self, process: subprocess.Popen[bytes], said: Path) -> None:
        self.process = process
        self._said = said

    @property
    def said(self) -> str:
        return self._said.read_text()

    def wait_until(self, words: str, times: int = 1) -> None:
        deadline = time.monotonic() + 120
        while self.said.count(words) < times:
            assert self.process.poll() is None, self.said
            assert time.monotonic() < deadline, self.said
            time.sleep(0.05)


@contextmanager
def pinned(cores: set[int]) -> Iterator[None]:
    """What is started in the block runs on these cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@pytest.fixture
def gpu_on_paper(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is started from now on finds a GPU."""
    for name, value in build_paper_gpu(tmp_path_factory.mktemp("paper")).items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    cores = physical_cores()
    if len(cores) < 2:
        pytest.skip("one machine can play two only with two cores")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        door = f"127.0.0.1:{free.getsockname()[1]}"
    with contextlib.ExitStack() as stack:
        with pinned({cores[0]}):
            service = stack.enter_context(serving(tmp_path / "data", "--agents", door, "--alike", "20"))
        fleet = Fleet(service, door, tmp_path)
        stack.callback(fleet.close)
        yield fleet


def test_a_job_for_a_board_is_measured_there(fleet: Fleet) -> None:
    board = fleet.start("device", "start", "--name", "board-1", "--type", "boards")
    board.wait_until("joined as board-1")
    with Client(fleet.service.url) as client:
        with pytest.raises(Exception, match=r"device 'boats' does not belong to this service; it has .*'boards'"):
            client.submit(client.upload(NETWORK)["id"], trials=20, device="boats")
        job = client.submit(client.upload(NETWORK)["id"], trials=8, device="boards")["id"]
        found = client.wait(job)
        assert found["state"] == "done", (found, fleet.service.log(), board.said)
        report = client.report(job)
        assert report["trials"] >= 8
        assert report["within_tolerance"] is True
        assert {"tuned", "onnxruntime"} <= {name for name, ms in report["latency_ms"].items() if ms}
        assert report["skipped"] == {}


@pytest.mark.slow
def test_a_job_for_a_board_without_python(fleet: Fleet) -> None:
    """The compiler's own server stands for the board, which has no worker of ours."""
    target = subprocess.run([sys.executable, "-c", _NATIVE], capture_output=True, check=True, text=True).stdout.strip()
    with stock_rpc("rpc_server") as port:
        told = ("--name", "gateway", "--type", "bare", "--rpc", f"127.0.0.1:{port}", "--target", target)
        gateway = fleet.start("device", "start", *told, "--threads", "1")
        gateway.wait_until("joined as gateway")
        assert "GFLOP/s" in gateway.said
        with Client(fleet.service.url) as client:
            job = client.submit(client.upload(NETWORK)["id"], trials=20, device="bare")["id"]
            found = client.wait(job)
            assert found["state"] == "done", (found, fleet.service.log(), gateway.said)
            report = client.report(job)
    assert report["trials"] >= 20
    assert report["within_tolerance"] is True
    assert report["latency_ms"]["tuned"]
    assert report["skipped"] == {"onnxruntime": "runs on the CPU here: its numbers are compared, its speed is not"}


_NATIVE = "from kintune.runtime.target import resolve_target; print(resolve_target('native', 1))"


@pytest.mark.slow
@pytest.mark.usefixtures("gpu_on_paper")
def test_a_job_for_a_gpu_elsewhere(fleet: Fleet) -> None:
    machine = fleet.start("device", "start", "--name", "gpus", "--type", "paper", "--device", "cuda:0")
    machine.wait_until("joined as gpus")
    with Client(fleet.service.url) as client:
        job = client.submit(client.upload(NETWORK)["id"], trials=6, device="paper")["id"]
        found = client.wait(job)
        assert found["state"] == "done", (found, fleet.service.log(), machine.said)
        report = client.report(job)
    assert report["within_tolerance"] is True
    assert report["latency_ms"]["tuned"]


@pytest.mark.slow
def test_a_worker_builds_and_a_board_that_vanishes_comes_back(fleet: Fleet) -> None:
    token = fleet.token()
    board = fleet.start("device", "start", "--name", "board-1", "--type", "boards", token=token)
    board.wait_until("joined as board-1")
    worker = fleet.start("worker", "start", "--name", "host-2")
    worker.wait_until("joined as host-2")
    with Client(fleet.service.url) as client:
        job = client.submit(client.upload(NETWORK)["id"], trials=60, device="boards")["id"]
        deadline = time.monotonic() + 120
        while not (client.job(job).get("progress") or {}).get("trials"):
            assert time.monotonic() < deadline, fleet.service.log()
            time.sleep(0.1)
        board.process.kill()
        board.process.wait()
        board = fleet.start("device", "start", "--name", "board-1", "--type", "boards", token=token)
        board.wait_until("joined as board-1")
        found = client.wait(job)
        assert found["state"] == "done", (found, fleet.service.log())
    log = (fleet.service.data / "engine.log").read_text()
    assert "started by host-2: kintune.workers.build_worker" in log
    assert log.count("started by board-1: kintune.workers.device_worker") >= 2
    for machine in (board, worker):
        machine.process.send_signal(signal.SIGINT)
        assert machine.process.wait(120) == 130


def test_who_is_not_what_it_says_is_turned_away_in_one_line(fleet: Fleet) -> None:
    token = fleet.token()
    board = fleet.start("device", "start", "--name", "board-1", "--type", "boards", token=token)
    board.wait_until("joined as board-1")
    other = fleet.start("worker", "start", "--name", "board-2", token=token)
    assert other.process.wait(60) == 2
    assert "this token belongs to the machine 'board-1'; join with that name" in other.said.splitlines()[-1]
    nobody = fleet.start("worker", "start", "--name", "host-2", token=_written(token.with_name("wrong"), "kt_wrong"))
    assert nobody.process.wait(60) == 2
    assert "the service refuses this machine: this takes a valid token" in nobody.said.splitlines()[-1]


def _written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path
