"""The engine with real processes that are really killed, refuse, hang, or are not there."""

import signal
import sys
from pathlib import Path

import msgspec
import pytest

from kintune.core.messages import ItemStatus, Work
from kintune.core.stage import Demand, Stage
from kintune.errors import EngineError, InputError, WireError
from kintune.scheduler.policies import Fair, Sequential
from kintune.scheduler.resources import Device, Host
from kintune.scheduler.scheduler import RetryLimits, Scheduler
from kintune.workers.engine.job_run import JobEnding, JobLaunch
from kintune.workers.engine.journal import JournalEntry
from kintune.workers.engine.local import LocalEngine
from kintune.workers.engine.process import Command
from kintune.workers.engine.settings import EngineSettings
from tests.support.journal import MemoryJournal
from tests.support.script import Act, Deed, Moment, Plot, Trap
from tests.support.scripted_engine import (
    CHAIN,
    CHAIN_ENDS,
    JOB,
    QUICK,
    RESOURCES,
    WORKER,
    ScriptedEngine,
    assert_chain_is_told,
    echo,
    ends,
    told,
    work,
)

pytestmark = pytest.mark.usefixtures("no_child_is_left")


def test_a_crash_ends_its_item_and_no_other(bench: ScriptedEngine) -> None:
    deeds = (echo("a"), Deed(Act.KILL, number=signal.SIGSEGV), Deed(Act.EXIT, number=3), Deed(Act.GARBAGE), echo("b"))
    story = told(bench.run(Plot(((work("w", *deeds, worker="device"),),))))
    status = {event.index: (event.status, event.cause) for event in story.events}
    assert status[0] == (ItemStatus.OK, "")
    assert status[1] == (ItemStatus.CRASHED, "killed by SIGSEGV")
    assert status[2] == (ItemStatus.CRASHED, "exited with code 3")
    assert status[3][0] is ItemStatus.CRASHED
    assert "no message" in status[3][1]
    assert status[4] == (ItemStatus.OK, "")
    assert "about to die" in bench.log.read_text()


def test_a_hang_is_killed_at_its_deadline_and_the_rest_goes_on(bench: ScriptedEngine) -> None:
    story = told(bench.run(Plot(((work("w", Deed(Act.HANG), echo("b"), worker="device", timeout_s=0.3),),))))
    assert [(event.status, event.cause) for event in story.events] == [
        (ItemStatus.TIMED_OUT, "exceeded 0.3 s"),
        (ItemStatus.OK, ""),
    ]


def test_a_failure_is_the_item_s_own(bench: ScriptedEngine) -> None:
    story = told(bench.run(Plot(((work("w", Deed(Act.FAIL, "no luck"), echo("b")),),))))
    assert ends(story.events)["w", 0] == (ItemStatus.FAILED, b"")
    assert {event.cause for event in story.events} == {"RuntimeError: no luck", ""}


@pytest.mark.parametrize("worker", ["build", "device", "job"])
def test_a_refusal_ends_the_job_with_its_line(bench: ScriptedEngine, worker: str) -> None:
    end = bench.run(Plot(((work("w", Deed(Act.REFUSE, "m.onnx: not there"), worker=worker),),)))
    assert (end.ending, end.cause, end.finished) == (JobEnding.REFUSED, "m.onnx: not there", None)
    assert bench.journal.history("j") == ()


@pytest.mark.parametrize("worker", ["build", "device", "job"])
def test_a_file_that_cannot_be_written_halts_the_job_until_there_is_room(tmp_path: Path, worker: str) -> None:
    journal = MemoryJournal()
    deed = Deed(Act.FULL, "out.kt: no space left", once=str(tmp_path / "full"))
    plot = Plot(((work("w", echo("a"), deed, worker=worker),),))
    end = ScriptedEngine(tmp_path / "log", journal).run(plot)
    assert (end.ending, end.cause, end.finished) == (JobEnding.HALTED, "out.kt: no space left", None)
    assert {event.index for event in journal.history("j")} <= {0}
    story = told(ScriptedEngine(tmp_path / "log", journal).run(plot))
    assert ends(story.events)["w", 1] == (ItemStatus.OK, b"out.kt: no space left")


def test_a_stale_answer_is_refused_and_counted(bench: ScriptedEngine) -> None:
    story = told(bench.run(Plot(((work("w", Deed(Act.STALE, "a"), echo("b"), worker="device"),),))))
    assert ends(story.events) == {("w", 0): (ItemStatus.OK, b"a"), ("w", 1): (ItemStatus.OK, b"b")}
    assert bench.engine.stale_answers == 1


def test_a_stale_answer_of_a_job_is_refused_and_counted(bench: ScriptedEngine) -> None:
    end = bench.run(Plot(((work("w", Deed(Act.STALE, "a"), worker="job"),),)))
    assert ends(told(end).events) == {("w", 0): (ItemStatus.OK, b"a")}
    assert end.stale_answers == 1


@pytest.mark.parametrize(
    ("moment", "number"),
    [
        (Moment.START, 0),
        (Moment.OPEN, 0),
        *((Moment.ACCEPT, number) for number in range(len(CHAIN_ENDS))),
        *((Moment.CLOSED, number) for number in range(4)),
    ],
)
def test_a_job_process_killed_at_any_moment_is_rebuilt(
    bench: ScriptedEngine, tmp_path: Path, moment: Moment, number: int
) -> None:
    trap = Trap(moment, number, once=str(tmp_path / "sprung"))
    end = bench.run(msgspec.structs.replace(CHAIN, traps=(trap,)))
    assert (tmp_path / "sprung").exists()
    assert_chain_is_told(end, bench.journal)


def test_a_job_process_killed_in_its_own_stage_runs_it_again(bench: ScriptedEngine, tmp_path: Path) -> None:
    deed = Deed(Act.KILL, "picked", signal.SIGKILL, once=str(tmp_path / "killed"))
    end = bench.run(Plot(((work("select", echo("first"), deed, worker="job"),),)))
    story = told(end)
    assert ends(story.events) == {("select", 0): (ItemStatus.OK, b"first"), ("select", 1): (ItemStatus.OK, b"picked")}
    assert [event.attempt for event in story.events] == [0, 1]


def test_a_stage_goes_on_where_its_job_s_next_process_dies_while_it_starts(
    bench: ScriptedEngine, tmp_path: Path
) -> None:
    """The second process has been given the stage's item, and is gone before it could be sent."""
    sprung = tmp_path / "sprung"
    sprung.touch()  # so that the first process passes
    deed = Deed(Act.KILL, "picked", signal.SIGKILL, once=str(tmp_path / "killed"))
    trap = Trap(Moment.START, once=str(sprung))
    plot = Plot(((work("select", deed, worker="job"),),), traps=(trap,))
    begun: list[str] = []

    def began(job: str, stage: Work) -> None:
        begun.append(stage.stage.id)
        if len(begun) == 1:
            sprung.unlink()

    with bench.engine as engine:
        end = engine.run([JobLaunch("j", JOB, plot.encode())], on_stage=began)["j"]
    assert sprung.exists()
    assert ends(told(end).events) == {("select", 0): (ItemStatus.OK, b"picked")}


def test_a_stage_that_always_kills_its_job_fails_it_with_its_last_words(bench: ScriptedEngine) -> None:
    end = bench.run(Plot(((work("select", Deed(Act.KILL, number=signal.SIGSEGV), worker="job"),),)))
    assert end.ending is JobEnding.FAILED
    assert "select cannot be done: the job's process killed by SIGSEGV" in end.cause
    assert "about to die" in end.cause
    assert sum("StageFailed" in line for line in end.story) == 4


def test_a_job_process_that_dies_four_times_in_a_row_has_failed(bench: ScriptedEngine) -> None:
    end = bench.run(msgspec.structs.replace(CHAIN, traps=(Trap(Moment.START),)))
    assert end.ending is JobEnding.FAILED
    assert "died 4 times in a row" in end.cause
    assert "caught at start 0" in end.cause
    assert bench.log.read_text().count("killed by SIGKILL") == 4


def test_a_job_that_says_nothing_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    settings = EngineSettings(reply_timeout_s=0.2, job_deaths=2)
    end = ScriptedEngine(tmp_path / "log", MemoryJournal(), settings).run(Plot((), silent=True))
    assert end.ending is JobEnding.FAILED
    assert "took more than 0.2 s to open the job" in end.cause


@pytest.mark.parametrize(("repeats", "ending"), [(("job",), JobEnding.FINISHED), ((), JobEnding.FAILED)])
def test_what_a_job_must_do_again_gets_the_time_that_it_took(
    tmp_path: Path, repeats: tuple[str, ...], ending: JobEnding
) -> None:
    journal = MemoryJournal()
    journal.commit("j", JournalEntry(1.0, "prepare", 0, "job", 0, ItemStatus.OK, b"", seconds=10.0))
    plot = Plot(((work("prepare", echo("p"), worker="job"),), (work("w", echo("b")),)), opening_s=2.5)
    settings = EngineSettings(reply_timeout_s=1.0, job_deaths=1)
    with ScriptedEngine(tmp_path / "log", journal, settings).engine as engine:
        end = engine.run([JobLaunch("j", JOB, plot.encode(), repeats=repeats)])["j"]
    assert end.ending is ending, end


@pytest.mark.parametrize("full_at", range(len(CHAIN_ENDS)))
def test_a_full_disk_pauses_the_run_and_nothing_acknowledged_is_lost(tmp_path: Path, full_at: int) -> None:
    journal = MemoryJournal(full_at)
    acknowledged: list[bytes] = []
    with pytest.raises(OSError, match="no space left"):
        ScriptedEngine(tmp_path / "log", journal).run(
            CHAIN, on_progress=lambda job, payload: acknowledged.append(payload)
        )
    committed = journal.history("j")
    assert full_at >= len(committed) >= len(acknowledged)
    journal.full_at = None
    assert_chain_is_told(ScriptedEngine(tmp_path / "log", journal).run(CHAIN), journal)
    assert journal.history("j")[: len(committed)] == committed


@pytest.mark.parametrize(
    ("offer", "why"),
    [
        (work("w", worker="unheard"), "cannot start"),
        (work("w", job="another"), "of another job"),
    ],
)
def test_an_offer_that_makes_no_sense_fails_the_job(bench: ScriptedEngine, offer: Work, why: str) -> None:
    end = bench.run(Plot(((offer,),)))
    assert end.ending is JobEnding.FAILED
    assert why in end.cause


def test_a_stage_that_fits_nowhere_fails_the_job(bench: ScriptedEngine) -> None:
    wide = Work(Stage("w", "j", "build", Demand(cores=64)), "build", b"", (), 1)
    end = bench.run(Plot(((wide,),)))
    assert end.ending is JobEnding.FAILED
    assert "no host or device could ever run it" in end.cause


def engine_with(command: Command) -> LocalEngine:
    return LocalEngine(Scheduler(Sequential()), MemoryJournal(), {"build": command}, RESOURCES)


def test_a_worker_that_refuses_its_arguments_is_an_input_error() -> None:
    with (
        engine_with(Command((*WORKER, "--refuse", "unknown target 'x'"))) as engine,
        pytest.raises(InputError, match="unknown target 'x'"),
    ):
        engine.about("build")


def test_a_worker_that_cannot_start_ends_the_run_with_its_last_words() -> None:
    plot = Plot(((work("w", echo("a")),),))
    with (
        engine_with(Command((*WORKER, "--die", "7"))) as engine,
        pytest.raises(
            EngineError, match=r"(?s)exited with code 7 before it was up, 3 times in a row.*cannot import what I need"
        ),
    ):
        engine.run([JobLaunch("j", JOB, plot.encode())])


def test_a_program_that_is_not_there_is_an_engine_error() -> None:
    with engine_with(Command(("/no/such/program",))) as engine, pytest.raises(EngineError, match="cannot start"):
        engine.about("build")


def test_a_worker_of_another_kind_is_found_out() -> None:
    with (
        engine_with(Command((*WORKER, "--kind", "device"))) as engine,
        pytest.raises(WireError, match="'build' worker"),
    ):
        engine.about("build")


def with_two_devices(broken: str, log: Path) -> LocalEngine:
    """One of two devices has a worker that dies before it is up."""
    commands = {
        "build": Command(WORKER),
        "device@cpu0": Command((*WORKER, "--kind", "device")),
        "device@cpu1": Command((*WORKER, "--kind", "device")),
        f"device@{broken}": Command((sys.executable, "-c", "raise SystemExit(3)")),
    }
    return LocalEngine(
        Scheduler(Fair(), RetryLimits(backoff_s=0.01)), MemoryJournal(), commands,
        [Host("h", 2, 1000), Device("cpu0", "cpu"), Device("cpu1", "cpu")], log=log, settings=QUICK,
    )  # fmt: skip


@pytest.mark.parametrize("broken", ["cpu0", "cpu1"])
def test_a_device_that_cannot_be_used_is_given_up_and_its_work_done_by_another(tmp_path: Path, broken: str) -> None:
    stages = tuple(work(f"p{n}", echo(f"p{n}"), worker="device") for n in range(4))
    with with_two_devices(broken, tmp_path / "run.log") as engine:
        end = engine.run([JobLaunch("j", JOB, Plot((stages,)).encode())])["j"]
    assert {payload for _, payload in ends(told(end).events).values()} == {b"p0", b"p1", b"p2", b"p3"}
    assert f"{broken} is given up" in (tmp_path / "run.log").read_text()


def test_without_its_last_device_a_run_ends(tmp_path: Path) -> None:
    engine = LocalEngine(
        Scheduler(Fair()), MemoryJournal(), {"device@cpu0": Command((sys.executable, "-c", "raise SystemExit(3)"))},
        [Host("h", 2, 1000), Device("cpu0", "cpu")], log=tmp_path / "run.log", settings=QUICK,
    )  # fmt: skip
    plot = Plot(((work("p", echo("p"), worker="device"),),))
    with engine, pytest.raises(EngineError, match="times in a row"):
        engine.run([JobLaunch("j", JOB, plot.encode())])
