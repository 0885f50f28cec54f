"""The engine with real processes: what it does when all goes well, and when it is to stop."""

import os
import signal
from pathlib import Path

import msgspec
import pytest

from kintune.errors import EngineError
from kintune.scheduler.policies import Fair
from kintune.scheduler.scheduler import Scheduler
from kintune.workers.engine.job_run import JobEnding, JobLaunch
from kintune.workers.engine.local import LocalEngine
from tests.support.journal import MemoryJournal
from tests.support.script import Act, Deed, Moment, Plot, Trap
from tests.support.scripted_engine import (
    CHAIN,
    COMMANDS,
    JOB,
    QUICK,
    RESOURCES,
    ScriptedEngine,
    assert_chain_is_told,
    echo,
    ends,
    told,
    work,
)

pytestmark = pytest.mark.usefixtures("no_child_is_left")


def test_stages_of_all_kinds_run_in_order(bench: ScriptedEngine) -> None:
    shown: list[bytes] = []
    end = bench.run(CHAIN, on_progress=lambda job, payload: shown.append(payload))
    assert_chain_is_told(end, bench.journal)
    assert told(end).closed == ("select", "build", "profile", "update")
    assert shown == [b"%d" % n for n in range(1, 10)]
    assert set(end.timings.stage_seconds) == {"job", "build", "device"}
    assert 0 <= end.timings.overhead_seconds <= end.timings.wall_seconds
    assert end.stale_answers == 0


def test_a_build_uses_as_many_workers_as_cores_and_a_device_one(bench: ScriptedEngine) -> None:
    bench.run(CHAIN)
    lines = bench.log.read_text().splitlines()
    started = [line.split("]")[0] for line in lines if "started as process" in line]
    assert sorted(started) == ["[build.1", "[build.2", "[device@cpu0", "[job j"]


def test_a_job_may_refuse_when_it_is_opened(bench: ScriptedEngine) -> None:
    end = bench.run(Plot((), refuse="trials must be positive"))
    assert (end.ending, end.cause) == (JobEnding.REFUSED, "trials must be positive")


def test_a_job_that_has_no_room_for_its_files_when_it_is_opened_can_be_gone_on_with(bench: ScriptedEngine) -> None:
    end = bench.run(Plot((), full="/tmp: no space left"))
    assert (end.ending, end.cause) == (JobEnding.HALTED, "/tmp: no space left")


def test_large_payloads_pass_both_ways(bench: ScriptedEngine) -> None:
    size = 24 << 20
    story = told(bench.run(Plot(((work("w", Deed(Act.BIG, number=size), echo("x" * size), worker="device"),),))))
    assert [len(event.payload) for event in story.events] == [size, size]


def test_a_second_session_continues_the_clock_of_the_first(tmp_path: Path) -> None:
    journal = MemoryJournal(full_at=3)
    with pytest.raises(OSError, match="no space left"):
        ScriptedEngine(tmp_path / "log", journal).run(CHAIN)
    before = journal.active_seconds("j")
    journal.full_at = None
    ScriptedEngine(tmp_path / "log", journal).run(CHAIN)
    assert journal.history("j")[3].at >= before > 0


STOPPABLE = Plot(
    (
        (
            work("build", *(echo(f"b{n}") for n in range(200)), droppable=True),
            work("profile", echo("p"), worker="device", after=("build",), droppable=True),
            work("package", echo("out"), worker="job", after=("profile",)),
        ),
        (work("never", echo("n")),),
    )
)


def test_stop_in_mid_stage_drops_what_has_not_begun_and_nothing_else(bench: ScriptedEngine) -> None:
    def stop_at_third(job: str, payload: bytes) -> None:
        if payload == b"3":
            bench.engine.stop("interrupted")

    end = bench.run(STOPPABLE, on_progress=stop_at_third)
    assert end.finished is not None
    assert end.finished.reason == "interrupted"
    story = told(end)
    assert set(story.closed) == {"build", "profile", "package"}
    by_stage = [event.stage for event in story.events]
    assert 3 <= by_stage.count("build") < 200
    assert by_stage.count("package") == 1
    assert "profile" not in by_stage
    assert "never" not in by_stage


def test_ctrl_c_asks_to_stop_once(bench: ScriptedEngine) -> None:
    def interrupt(job: str, payload: bytes) -> None:
        if payload == b"1":
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    end = bench.run(STOPPABLE, on_progress=interrupt)
    assert told(end).stopped == "interrupted"
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_ctrl_c_leaves_at_once(bench: ScriptedEngine) -> None:
    def interrupt(job: str, payload: bytes) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    plot = Plot(((work("w", echo("a"), echo("b"), Deed(Act.HANG), worker="device"),),))
    with pytest.raises(KeyboardInterrupt):
        bench.run(plot, on_progress=interrupt)


def test_a_job_rebuilt_after_stop_is_told_to_stop_again(bench: ScriptedEngine, tmp_path: Path) -> None:
    trap = Trap(Moment.STOP, once=str(tmp_path / "sprung"))

    def stop(job: str, payload: bytes) -> None:
        bench.engine.stop("interrupted")

    # the rebuilt process offers its droppable stages again before it hears of the stop
    end = bench.run(msgspec.structs.replace(STOPPABLE, traps=(trap,)), on_progress=stop)
    assert (tmp_path / "sprung").exists()
    assert told(end).stopped == "interrupted"
    assert [event.stage for event in told(end).events].count("build") < 200


def test_several_jobs_run_one_after_the_other(bench: ScriptedEngine) -> None:
    plots = {
        job: Plot(((work("w", echo(job), job=job), work("p", echo(job), worker="device", job=job)),)) for job in "jkl"
    }
    with bench.engine:
        ends_of = bench.engine.run([JobLaunch(job, JOB, plot.encode()) for job, plot in plots.items()])
    for job, end in ends_of.items():
        assert {event.payload for event in told(end).events} == {job.encode()}


def test_one_engine_runs_job_after_job(bench: ScriptedEngine) -> None:
    with bench.engine:
        for round in range(2):
            plot = Plot(((work(f"w{round}", echo("x"), job=f"j{round}"),),))
            ended = bench.engine.run([JobLaunch(f"j{round}", JOB, plot.encode())])
            assert ended[f"j{round}"].ending is JobEnding.FINISHED
    assert bench.log.read_text().count("build.") == bench.log.read_text().count("build.1]")
    with pytest.raises(EngineError, match="closed"):
        bench.engine.run([])


def test_about_is_what_a_worker_says_of_itself(bench: ScriptedEngine) -> None:
    with bench.engine:
        assert bench.engine.about("device", "cpu0") == b"scripted"
        assert bench.engine.about("device", "cpu0") == b"scripted"
    assert bench.log.read_text().count("started as process") == 1


def test_jobs_whose_stages_are_called_alike_share_workers(tmp_path: Path) -> None:
    def plot(job: str) -> Plot:
        return Plot(
            (
                (
                    work("build", *(echo(f"b{n}") for n in range(4)), context=job.encode(), job=job),
                    work("profile", echo("p"), worker="device", context=job.encode(), job=job),
                ),
            )
        )

    engine = LocalEngine(
        Scheduler(Fair()), MemoryJournal(), COMMANDS, RESOURCES, log=tmp_path / "run.log", settings=QUICK
    )
    with engine:
        all_ends = engine.run([JobLaunch(job, JOB, plot(job).encode()) for job in ("a", "b")])
    for job, end in all_ends.items():
        payloads = {payload for _, payload in ends(told(end).events).values()}
        assert payloads == {f"{job}{text}".encode() for text in ("b0", "b1", "b2", "b3", "p")}


def test_what_others_have_told_in_time_counts_before_a_deadline_that_passed_meanwhile() -> None:
    """As the answer of a worker elsewhere does, when the engine was busy."""
    now, rung = [0.0], list[str]()
    with LocalEngine(Scheduler(Fair()), MemoryJournal(), {}, RESOURCES, clock=lambda: now[0]) as engine:
        engine._reactor.set_deadline("item", 1.0, lambda: rung.append("late"))
        engine.post(lambda: engine._reactor.clear_alarm("item"))
        now[0] = 2.0
        engine._turn()
    assert rung == []
