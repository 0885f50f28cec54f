"""Stages that run elsewhere: real processes, kept by somebody who may vanish with them and come back."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from kintune.core.messages import Committed, ItemStatus, Work
from kintune.core.stage import Demand, Stage
from kintune.errors import WireError
from kintune.scheduler.policies import Sequential
from kintune.scheduler.resources import Device, Host
from kintune.scheduler.scheduler import RetryLimits, Scheduler
from kintune.wire.child import ResourceLimits
from kintune.workers.engine.job_run import JobEnd, JobEnding, JobLaunch
from kintune.workers.engine.journal import JournalEntry
from kintune.workers.engine.local import LocalEngine
from kintune.workers.engine.process import Anywhere, Command, RemoteCommand
from kintune.workers.engine.remote_nodes import RemoteNode
from kintune.workers.engine.settings import EngineSettings
from tests.support.journal import MemoryJournal
from tests.support.process_host import LocalProcessHost
from tests.support.script import Act, Deed, Plot
from tests.support.scripted_job import Told

MODULE = "tests.support.scripted_worker"
JOB = Command((sys.executable, "-m", "tests.support.scripted_job"))
HERE = (Host("here", cores=1, memory_mb=1000),)
THERE = Host("there", cores=2, memory_mb=1000)
BOARD = Device("board", "cpu", host="there")
COMMANDS = {
    "build@there": RemoteCommand("neighbour", MODULE),
    "device@board": RemoteCommand("neighbour", MODULE, ("--kind", "device")),
}


def work(id: str, *deeds: Deed, worker: str = "build", after: tuple[str, ...] = ()) -> Work:
    demand = Demand(device="cpu", exclusive=True) if worker == "device" else Demand(cores=2 if worker == "build" else 1)
    stage = Stage(id, "j", worker, demand, affinity="j" if worker == "job" else None, after=after)
    return Work(stage, worker, b"", tuple(deed.encode() for deed in deeds), 60)


class Bench:
    """An engine for one job, and a neighbour."""

    def __init__(
        self, log: Path, names: tuple[str, ...] = ("neighbour",), programs: frozenset[str] = frozenset({MODULE})
    ) -> None:
        self.journal = MemoryJournal()
        self.log = log
        self.engine = LocalEngine(
            Scheduler(Sequential(), RetryLimits(backoff_s=0.01, resources_may_join=True)),
            self.journal,
            {},
            HERE,
            log=log,
            settings=EngineSettings(leave_timeout_s=5, losses_in_a_row=2, quarantine_s=0.05),
            elsewhere={"build", "device"},
        )
        self.neighbours = {name: LocalProcessHost(name, self.engine, programs) for name in names}
        self.answers: list[str | None] = []

    @property
    def node(self) -> RemoteNode:
        return RemoteNode("neighbour", self.neighbours["neighbour"], (THERE, BOARD), COMMANDS)

    def join(self, node: RemoteNode | None = None) -> None:
        self.engine.join(node or self.node, self.answers.append)

    def run(
        self,
        *rounds: tuple[Work, ...],
        on_stage: Callable[[str], None] = lambda _: None,
        command: Command | Anywhere = JOB,
    ) -> JobEnd:
        launch = JobLaunch("j", command, Plot(rounds).encode())
        with self.engine:
            return self.engine.run([launch], on_stage=lambda _, work: on_stage(work.stage.id))["j"]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path / "run.log")
    yield bench
    for neighbour in bench.neighbours.values():
        neighbour.close()


def answers(end: JobEnd) -> dict[tuple[str, int], tuple[ItemStatus, bytes]]:
    assert end.finished is not None, end
    events = msgspec.msgpack.decode(end.finished.summary, type=Told).events
    return {(event.stage, event.index): (event.status, event.payload) for event in events}


def test_stages_run_where_there_is_room_for_them(bench: Bench) -> None:
    bench.join()
    end = bench.run(
        (work("select", Deed(text="s"), worker="job"),),
        (
            work("build", *(Deed(text=f"b{n}") for n in range(5))),
            work("profile", Deed(text="p"), worker="device", after=("build",)),
        ),
    )
    assert answers(end) == {
        ("select", 0): (ItemStatus.OK, b"s"),
        **{("build", n): (ItemStatus.OK, b"b%d" % n) for n in range(5)},
        ("profile", 0): (ItemStatus.OK, b"p"),
    }
    log = bench.log.read_text()
    assert log.count(f"started by neighbour: {MODULE}") == 3  # two to build, one for the board
    assert "[device@board]" in log


def test_what_no_place_is_there_for_waits_until_one_joins(bench: Bench) -> None:
    joining = threading.Timer(0.3, bench.join)
    joining.start()
    assert answers(bench.run((work("build", Deed(text="b")),))) == {("build", 0): (ItemStatus.OK, b"b")}
    joining.join()


def test_a_worker_that_crashes_elsewhere_is_a_crash_and_is_replaced(bench: Bench) -> None:
    bench.join()
    end = bench.run((work("profile", Deed(Act.KILL, number=11), Deed(text="p"), worker="device"),))
    assert [status for status, _ in answers(end).values()] == [ItemStatus.CRASHED, ItemStatus.OK]
    assert "killed by SIGSEGV" in bench.log.read_text()
    assert "about to die" in bench.log.read_text()


def test_what_says_garbage_elsewhere_is_killed(bench: Bench) -> None:
    bench.join()
    end = bench.run((work("profile", Deed(Act.GARBAGE), Deed(text="p"), worker="device"),))
    assert [status for status, _ in answers(end).values()] == [ItemStatus.CRASHED, ItemStatus.OK]
    assert "said what is no message" in bench.log.read_text()


def test_a_place_that_vanishes_loses_what_ran_there_and_nothing_else(bench: Bench, tmp_path: Path) -> None:
    """The first attempt hangs; the place is lost with it, comes back, and the rest is done there."""
    bench.join()

    def vanish() -> None:
        bench.neighbours["neighbour"].deaf = True
        bench.engine.lose("neighbour", "no heartbeat for 10 s")
        bench.neighbours["neighbour"].deaf = False
        bench.join()

    hanging = Deed(Act.HANG, text="late", once=str(tmp_path / "hung"))
    timers: list[threading.Timer] = []

    def began(stage: str) -> None:
        if stage == "profile" and not timers:
            timers.append(threading.Timer(0.5, vanish))
            timers[0].start()

    end = bench.run((work("profile", Deed(text="early"), hanging, worker="device"),), on_stage=began)
    assert answers(end) == {("profile", 0): (ItemStatus.OK, b"early"), ("profile", 1): (ItemStatus.OK, b"late")}
    assert set(bench.answers) == {None}


def test_a_place_joins_once_and_as_what_it_was(bench: Bench) -> None:
    bench.join()
    bench.join()
    bench.engine.lose("neighbour", "gone")
    bench.join(bench.node._replace(resources=(THERE, msgspec.structs.replace(BOARD, host=None))))
    bench.join()
    assert bench.run((work("build", Deed(text="b")),)).ending is JobEnding.FINISHED
    first, twice, changed, again = bench.answers
    assert (first, again) == (None, None)
    assert changed is not None
    assert twice == "there is a node 'neighbour' already"
    assert changed.startswith("'board' comes back as something else")


def test_a_place_may_come_back_with_other_cores_and_a_device_of_another_type(bench: Bench) -> None:
    small, other = msgspec.structs.replace(THERE, cores=1), msgspec.structs.replace(BOARD, type="npu")
    bench.join(bench.node._replace(resources=(small, other)))
    bench.engine.lose("neighbour", "it gets more cores")
    bench.join()
    end = bench.run((work("build", Deed(text="b")), work("profile", Deed(text="p"), worker="device")))
    assert answers(end) == {("build", 0): (ItemStatus.OK, b"b"), ("profile", 0): (ItemStatus.OK, b"p")}
    assert bench.answers == [None, None]


@pytest.mark.parametrize(
    ("bad", "cause"),
    [
        (RemoteCommand("nobody", MODULE), "its node is gone before it was up, 3 times in a row"),
        (RemoteCommand("neighbour", MODULE, ("--die", "3")), "exited with code 3 before it was up, 3 times in a row"),
        (RemoteCommand("neighbour", MODULE, ("--refuse", "no such target")), "no such target"),
        (RemoteCommand("neighbour", MODULE, ("--kind", "oven")), "expected a 'build' worker"),
    ],
)
def test_a_place_whose_workers_cannot_start_is_left_alone_and_tried_again(
    bench: Bench, bad: RemoteCommand, cause: str
) -> None:
    """What is wrong elsewhere ends nobody's job here."""
    bench.join(bench.node._replace(commands={"build@there": bad}))

    def mend() -> None:
        while "there is left alone" not in bench.log.read_text():
            time.sleep(0.01)
        bench.engine.lose("neighbour", "somebody mends it")
        bench.join()

    mending = threading.Thread(target=mend)
    mending.start()
    end = bench.run((work("build", Deed(text="b")),))
    mending.join()
    assert answers(end) == {("build", 0): (ItemStatus.OK, b"b")}
    log = bench.log.read_text()
    assert cause in log
    assert "there is tried again" in log


def test_a_place_where_everything_dies_is_left_alone_for_longer_and_longer(bench: Bench) -> None:
    bench.join()
    end = bench.run((work("profile", *[Deed(Act.KILL, number=9)] * 3, worker="device"),))
    assert [status for status, _ in answers(end).values()] == [ItemStatus.CRASHED] * 3
    log = bench.log.read_text()
    assert (
        "board is left alone for 0.05 s: 2 items in a row were lost there, the last one since its worker killed" in log
    )
    assert "board is left alone for 0.1 s" in log


def test_what_an_unwell_device_has_to_do_is_done_when_it_is_well_again(bench: Bench, tmp_path: Path) -> None:
    bench.join()
    unwell = Deed(Act.UNWELL, text="the reference kernel takes twice as long", once=str(tmp_path / "unwell"))
    end = bench.run((work("profile", Deed(text="a"), unwell, worker="device"),))
    assert [status for status, _ in answers(end).values()] == [ItemStatus.OK] * 2
    assert "board is left alone for 0.05 s: DeviceUnwell: the reference kernel takes twice" in bench.log.read_text()


def test_an_unwell_device_of_this_machine_fails_the_item(bench: Bench) -> None:
    """There is nobody else to ask."""
    here = {"build": Command((sys.executable, "-m", MODULE))}
    engine = LocalEngine(Scheduler(Sequential()), bench.journal, here, (msgspec.structs.replace(HERE[0], cores=2),))
    with bench.engine, engine:
        plot = Plot(((work("build", Deed(Act.UNWELL, text="hot")),),))
        end = engine.run([JobLaunch("j", JOB, plot.encode())])["j"]
    assert [status for status, _ in answers(end).values()] == [ItemStatus.FAILED]


ANYWHERE = Anywhere("tests.support.scripted_job")


def node(bench: Bench, name: str, cores: int) -> RemoteNode:
    """A host that builds and on which jobs can live."""
    host = Host(f"host-{name}", cores, 1000)
    commands = {f"build@{host.id}": RemoteCommand(name, MODULE)}
    return RemoteNode(name, bench.neighbours[name], (host,), commands, ResourceLimits())


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path / "run.log", ("red", "blue"), frozenset({MODULE, ANYWHERE.module}))
    yield bench
    for neighbour in bench.neighbours.values():
        neighbour.close()


def test_jobs_live_where_there_is_most_room(two: Bench) -> None:
    for name, cores in (("red", 3), ("blue", 1)):
        two.join(node(two, name, cores))
    plot = Plot(((work("select", Deed(text="s"), worker="job"),),))
    for n in range(4):
        two.engine.add(JobLaunch(f"j{n}", ANYWHERE, _named(plot, f"j{n}").encode()))
    ends: dict[str, JobEnding] = {}

    def ended(job: str, end: JobEnd) -> None:
        ends[job] = end.ending
        if len(ends) == 4:
            two.engine.leave()

    with two.engine:
        two.engine.serve(on_end=ended)
    assert set(ends.values()) == {JobEnding.FINISHED}
    log = two.log.read_text()
    living = {n: "red" if f"[job j{n}] started by red" in log else "blue" for n in range(4)}
    assert sorted(living.values()) == ["blue", "red", "red", "red"]


def test_a_job_waits_until_there_is_a_place_to_live(two: Bench) -> None:
    joining = threading.Timer(0.3, lambda: two.join(node(two, "red", 2)))
    joining.start()
    end = two.run((work("select", Deed(text="s"), worker="job"),), command=ANYWHERE)
    joining.join()
    assert answers(end) == {("select", 0): (ItemStatus.OK, b"s")}


def test_a_job_whose_place_vanishes_goes_on_elsewhere_however_often(two: Bench, tmp_path: Path) -> None:
    """More often than its process may die."""
    moves = 5
    hung = [tmp_path / f"{n}" for n in range(moves)]
    two.join(node(two, "red", 2))

    def move() -> None:
        for n, file in enumerate(hung):
            while not file.exists():
                time.sleep(0.01)
            here, there = ("blue", "red") if n % 2 else ("red", "blue")
            two.neighbours[here].deaf = True
            two.engine.lose(here, "its link was cut")
            two.neighbours[here].deaf = False
            two.join(node(two, there, 2))

    moving = threading.Thread(target=move, daemon=True)
    moving.start()
    hangs = [Deed(Act.HANG, text=file.name, once=str(file)) for file in hung]
    end = two.run((work("select", *hangs, worker="job"),), command=ANYWHERE)
    moving.join()
    assert [status for status, _ in answers(end).values()] == [ItemStatus.OK] * moves
    assert set(two.answers) == {None}


def _named(plot: Plot, job: str) -> Plot:
    """The same for a job of this name."""
    return Plot(
        tuple(
            tuple(
                msgspec.structs.replace(
                    work, stage=msgspec.structs.replace(work.stage, job=job, affinity=work.stage.affinity and job)
                )
                for work in each
            )
            for each in plot.rounds
        )
    )


def test_a_second_line_under_a_name_takes_nothing_from_the_first(bench: Bench) -> None:
    bench.join()
    impostor = LocalProcessHost("impostor", bench.engine, {MODULE})
    bench.join(bench.node._replace(process_host=impostor))
    bench.engine.lose("neighbour", "its connection was cut", impostor)
    assert answers(bench.run((work("build", Deed(text="b")),))) == {("build", 0): (ItemStatus.OK, b"b")}
    impostor.close()
    assert bench.answers == [None, "there is a node 'neighbour' already"]


def test_what_a_worker_elsewhere_refuses_ends_nobodys_job(bench: Bench) -> None:
    bench.join()
    end = bench.run((work("profile", Deed(Act.REFUSE, text="no such file"), Deed(text="p"), worker="device"),))
    assert [status for status, _ in answers(end).values()] == [ItemStatus.FAILED, ItemStatus.OK]


def test_a_full_disk_elsewhere_ends_nobodys_job(bench: Bench) -> None:
    """Others may have room."""
    bench.join()
    end = bench.run((work("profile", Deed(Act.FULL, text="no space left"), Deed(text="p"), worker="device"),))
    assert [status for status, _ in answers(end).values()] == [ItemStatus.FAILED, ItemStatus.OK]


def test_a_job_that_finds_no_room_elsewhere_tries_again(two: Bench, tmp_path: Path) -> None:
    two.join(node(two, "red", 2))
    full = Deed(Act.FULL, text="out.kt: no space left", once=str(tmp_path / "full"))
    end = two.run((work("package", full, worker="job"),), command=ANYWHERE)
    assert answers(end) == {("package", 0): (ItemStatus.OK, b"out.kt: no space left")}
    assert "package failed and is tried again: out.kt: no space left" in two.log.read_text()


def test_jobs_do_not_live_with_those_who_only_build_nor_where_nothing_can_be_done(two: Bench, tmp_path: Path) -> None:
    """One host takes no jobs, the other is left alone for a while; the job waits for it."""
    two.join(node(two, "red", 8)._replace(job_limits=None))
    bad = {"build@host-blue": RemoteCommand("nobody", MODULE)}
    two.join(node(two, "blue", 2)._replace(commands=bad))
    end = two.run((work("select", Deed(text="s"), worker="job"),), command=ANYWHERE)
    assert answers(end) == {("select", 0): (ItemStatus.OK, b"s")}
    assert "[job j] started by blue" in two.log.read_text()


class Choosy(MemoryJournal):
    """Takes no answer that begins with a question mark."""

    def commit(self, job: str, entry: JournalEntry) -> Sequence[Committed]:
        if entry.payload.startswith(b"?"):
            raise WireError(f"{len(entry.payload)} bytes that are no answer")
        return super().commit(job, entry)


def test_an_answer_that_is_none_is_the_items_failure(bench: Bench) -> None:
    bench.journal = Choosy()
    bench.engine.close()
    bench.engine = LocalEngine(
        Scheduler(Sequential(), RetryLimits(resources_may_join=True)), bench.journal, {}, HERE, elsewhere={"device"}
    )
    bench.neighbours["neighbour"]._engine = bench.engine
    bench.join()
    end = bench.run((work("profile", Deed(text="?"), Deed(text="p"), worker="device"),))
    assert answers(end) == {("profile", 0): (ItemStatus.FAILED, b""), ("profile", 1): (ItemStatus.OK, b"p")}
    (first, _) = bench.journal.history("j")
    assert first.cause == "its answer is none: 1 bytes that are no answer"
