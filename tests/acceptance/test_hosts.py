"""Several hosts, for real: each is a network namespace, with links that are cut, slow, and come back.

`make test-hosts` runs this, as root, with the data of the service in PostgreSQL.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from sqlalchemy import create_engine, text

from kintune.hardware.cores import physical_cores
from kintune.service.client import Client
from kintune.testing.serving import Serving, serving
from tests.support.network import Network, SlowLink, why_no_network

pytestmark = [pytest.mark.may_use("postgresql"), pytest.mark.tvm, pytest.mark.slow, pytest.mark.timeout(1500)]

NETWORK = Path(__file__).parents[2] / "benchmarks/one_layer.onnx"
ORCHESTRATOR = "kintune.service.orchestrator.process"


class Park:
    """A service here, and hosts around it: what runs on them, and what it has said."""

    def __init__(self, service: Serving, network: Network, door: str, folder: Path, database: str) -> None:
        self.service, self.network, self.door, self.folder = service, network, door, folder
        self._database = database
        self._tokens: dict[str, Path] = {}
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, host: str, *arguments: str, door: str = "") -> None:
        """Start an agent on a host, with the token that it had before, if there was one."""
        if host not in self._tokens:
            self._tokens[host] = self.folder / f"token-{host}"
            with self._tokens[host].open("wb") as file:
                subprocess.run(self._kintune("service", "add-token", "--data", str(self.service.data), "--user", "op",
                                             "--scope", "machine"), stdout=file, check=True)  # fmt: skip
        core = physical_cores()[-1]
        command = self._kintune(*arguments, "--name", host, "--service", door or self.door)
        command += ["--token-file", str(self._tokens[host])]
        with (self.folder / f"said-{host}").open("ab") as said:
            started = subprocess.Popen(
                [*self.network.inside(host), "taskset", "-c", str(core), *command],
                env={**os.environ, "KINTUNE_LOCK_DIR": str(self.folder / f"locks-{host}")},
                stderr=said,
            )
        self._started.append(started)

    def said(self, host: str) -> str:
        return (self.folder / f"said-{host}").read_text()

    def wait_until_joined(self, host: str, times: int = 1) -> None:
        self.wait_until(lambda: self.said(host).count("joined as") >= times, host)

    def wait_until(self, happened: Any, what: str, seconds: float = 180.0) -> None:
        deadline = time.monotonic() + seconds
        while not happened():
            assert time.monotonic() < deadline, (what, self.service.log()[-3000:], self.story()[-6000:])
            time.sleep(0.1)

    def events(self, kind: str = "") -> list[tuple[Any, ...]]:
        """All that is committed, or what stages of a kind have brought."""
        engine = create_engine(self._database)
        with contextlib.closing(engine.connect()) as connection:
            rows = connection.execute(
                text("SELECT run_id, seq, stage, idx, status, checksum FROM events ORDER BY run_id, seq")
            ).all()
        engine.dispose()
        return [tuple(row) for row in rows if row[2].startswith(kind)]

    def story(self) -> str:
        return (self.service.data / "engine.log").read_text(errors="replace")

    def restart_orchestrator(self) -> None:
        for child in psutil.Process(self.service.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if ORCHESTRATOR in child.cmdline():
                    child.kill()
        self.service.wait_until()

    def close(self) -> None:
        """End what runs on the hosts."""
        for process in self._started:
            process.kill()
            process.wait()

    @staticmethod
    def _kintune(*arguments: str) -> list[str]:
        return [sys.executable, "-m", "kintune", *arguments]


@pytest.fixture
def park(tmp_path: Path) -> Iterator[Park]:
    if reason := why_no_network():
        pytest.skip(reason)
    postgres = os.environ.get("KINTUNE_TEST_POSTGRES", "")
    options = ("--database", postgres) if postgres else ()
    database = postgres or f"sqlite:///{tmp_path / 'data/records.sqlite'}"
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(Network())
        with socket.socket() as free:
            free.bind((network.address, 0))
            door = f"{network.address}:{free.getsockname()[1]}"
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {physical_cores()[0]})
        try:
            # The hosts share a core, and so the reference kernel takes as long as others let it.
            service = stack.enter_context(
                serving(tmp_path / "data", "--agents", door, "--alike", "20", "--jobs-at-once", "3", *options)
            )
        finally:
            os.sched_setaffinity(0, before)
        for host in ("host-1", "host-2", "board-1", "board-2", "board-3"):
            network.add(host)
        yield stack.enter_context(contextlib.closing(Park(service, network, door, tmp_path, database)))


def device(type: str) -> tuple[str, ...]:
    return ("device", "start", "--type", type)


def test_jobs_outlive_whatever_happens_to_hosts_links_and_boards(park: Park) -> None:
    """PEERS, fault tests 1 to 3, 8 and 9: nothing acknowledged is lost, nothing is done twice, everything ends."""
    target = (park.network.address, int(park.door.rpartition(":")[2]))
    with SlowLink(park.network.address, target, 0.1, 5e6) as slow, Client(park.service.url) as client:
        park.start("host-1", "worker", "start", door=f"{park.network.address}:{slow.port}")
        park.start("host-2", "worker", "start")
        for board, type in (("board-1", "red"), ("board-2", "red"), ("board-3", "blue")):
            park.start(board, *device(type))
        for host in ("host-1", "host-2", "board-1", "board-2", "board-3"):
            park.wait_until_joined(host)
        model = client.upload(NETWORK)["id"]
        jobs = [client.submit(model, trials=150, device=type, seed=seed)["id"]
                for seed, type in enumerate(("red", "red", "blue"))]  # fmt: skip
        seen: set[tuple[Any, ...]] = set()

        def progress(count: int) -> None:
            """Wait until so many more candidates are timed, and keep what is committed by then."""
            before = len(park.events("profile"))
            park.wait_until(lambda: len(park.events("profile")) >= before + count, "candidates are timed")
            seen.update(park.events())

        progress(10)
        park.wait_until(lambda: "started by board-3" in park.story(), "the only blue board is at work")
        park.network.cut("board-3")
        progress(10)
        park.wait_until(lambda: "nothing was heard of it for 8 s" in park.story(), "its silence is noticed")
        park.network.mend("board-3")
        park.network.kill("host-2")
        progress(10)
        park.start("host-2", "worker", "start")
        park.restart_orchestrator()
        progress(10)
        park.network.kill("board-1")
        progress(5)
        park.start("board-1", *device("red"))
        for job in jobs:
            found = client.wait(job)
            assert found["state"] == "done", (found, park.service.log()[-3000:], park.story()[-6000:])
        after = park.events()
    assert seen <= set(after)
    done = [(run, stage, index) for run, _, stage, index, status, _ in after if status == "ok"]
    assert len(done) == len(set(done))
    assert park.said("board-3").count("joined as") >= 2
    assert park.said("host-1").count("joined as") >= 2  # through its slow link, after the restart as well
    assert "started by host-1: kintune.workers.build_worker" in park.story()
