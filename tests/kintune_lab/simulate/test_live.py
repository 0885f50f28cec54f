"""Mock jobs with real processes; only their names for time differ from a simulation."""

from __future__ import annotations

import os
import signal
import sys
import threading
from itertools import pairwise
from pathlib import Path

import msgspec
import psutil
import pytest

from kintune.core.messages import Finished, OfferStages, StageClosed
from kintune.errors import InputError
from kintune.scheduler.resources import Device, Host
from kintune.workers.engine.process import Command
from kintune_lab.simulate import live
from kintune_lab.simulate.history import Ending
from kintune_lab.simulate.live import play_live
from kintune_lab.simulate.mock_process import STOPPED, MockProcess
from kintune_lab.simulate.mock_worker import item
from kintune_lab.simulate.plan import MockJob, PlannedJob
from kintune_lab.simulate.spec import Scenario, Setup

RESOURCES = (Host("host", 1, 1000), Device("gpu", "gpu"))
JOB = MockJob(device="gpu", rounds=3, select_s=2, build_s=3, profile_s=5, update_s=1)


def scenario(jobs: str = "ab") -> Scenario:
    return Scenario(RESOURCES, tuple(JOB.plan(job) for job in jobs))


@pytest.mark.parametrize("policy", ["fair", "predictive", "uncontrolled"])
def test_jobs_are_played_to_their_ends(tmp_path: Path, policy: str) -> None:
    history = play_live(scenario(), Setup(policy), speed=100.0, log=tmp_path / "log")
    assert {(job.job, job.ending) for job in history.jobs} == {("a", Ending.DONE), ("b", Ending.DONE)}
    assert len(history.spans) == 2 * 12
    for span in history.spans:
        assert span.ready <= span.start < span.end
    profiles = sorted((span.start, span.end) for span in history.spans if span.kind == "profile")
    if policy != "uncontrolled":
        assert all(one[1] <= two[0] for one, two in pairwise(profiles))


def test_processes_that_are_killed_are_replaced(tmp_path: Path) -> None:
    """Whatever dies, every job ends; what a dead worker had in hand is over."""
    killed: list[str] = []
    over = threading.Event()

    def kill() -> None:
        me = psutil.Process()
        while not over.wait(0.25) and len(killed) < 4:
            for kind in ("mock_process", "mock_worker"):
                for child in me.children():
                    try:
                        if kind in " ".join(child.cmdline()) and killed.count(kind) < 2:
                            os.kill(child.pid, signal.SIGKILL)
                            killed.append(kind)
                            break
                    except psutil.Error:
                        continue

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        history = play_live(scenario(), Setup("fair"), speed=10.0, log=tmp_path / "log")
    finally:
        over.set()
        killer.join()
    assert set(killed) == {"mock_process", "mock_worker"}
    assert {job.ending for job in history.jobs} == {Ending.DONE}


def test_a_job_whose_process_keeps_dying_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dying = Command((sys.executable, "-c", "raise SystemExit(3)"), {})
    monkeypatch.setattr(live, "_python", lambda _module: dying)
    history = play_live(scenario("a"), Setup("fair"), log=tmp_path / "log")
    (job,) = history.jobs
    assert job.ending is Ending.FAILED
    assert "exited with code 3" in job.cause


def test_an_interrupted_play_has_no_result(tmp_path: Path) -> None:
    """A schedule that was cut short would look like a fast one."""
    me, over = psutil.Process(), threading.Event()

    def interrupt() -> None:
        while not over.wait(0.05):
            if any(child.status() != psutil.STATUS_ZOMBIE for child in me.children()):
                os.kill(me.pid, signal.SIGINT)
                return

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            play_live(scenario("a"), Setup("fair"), speed=20.0, log=tmp_path / "log")
    finally:
        over.set()
        interrupting.join()


def test_what_cannot_be_played_live_is_refused() -> None:
    late = Scenario(RESOURCES, (JOB.plan("a", at=5.0),))
    with pytest.raises(InputError, match="job a arrives later"):
        play_live(late, Setup("fair"))
    with pytest.raises(InputError, match="interference is simulated"):
        play_live(scenario(), Setup("fair", interference={"update": 2.0}))


class TestTheProcess:
    def opened(self, job: PlannedJob) -> tuple[MockProcess, OfferStages]:
        process = MockProcess(lambda seconds: None)
        (said,) = process.open(job.id, msgspec.msgpack.encode(job), ())
        assert isinstance(said, OfferStages)
        return process, said

    def test_it_offers_what_can_run_and_tells_what_lies_ahead(self) -> None:
        process, offer = self.opened(JOB.plan("a"))
        assert [work.stage.id for work in offer.works] == ["select-0"]
        assert offer.ahead == {"a/select": 2, "a/build": 3, "a/profile": 3, "a/update": 3}
        (after,) = process.closed(StageClosed("select-0", 0, 0.0, 0.0))
        assert isinstance(after, OfferStages)
        (work,) = after.works
        assert (work.stage.id, work.worker) == ("build-0", "mock")
        assert process.item(item(3.0)) == b""

    def test_one_that_tells_nothing_tells_nothing(self) -> None:
        _, offer = self.opened(JOB.plan("a", tells=False))
        assert offer.ahead is None

    def test_asked_to_stop_it_finishes_once_nothing_is_under_way(self) -> None:
        process, _ = self.opened(JOB.plan("a"))
        assert list(process.stop("interrupted")) == []
        (last,) = process.closed(StageClosed("select-0", 0, 0.0, 0.0))
        assert isinstance(last, Finished)
        assert last.reason == STOPPED
