"""Several ends in one commit: when, in which order, and what is known if that fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from kintune.core.messages import Committed, ItemStatus
from kintune.workers.engine.job_run import JobLaunch
from kintune.workers.engine.journal import JournalEntry
from kintune.workers.engine.settings import EngineSettings
from tests.support.journal import MemoryJournal
from tests.support.script import Act, Deed, Plot
from tests.support.scripted_engine import JOB, ScriptedEngine, echo, ends, told, work

pytestmark = pytest.mark.usefixtures("no_child_is_left")

PATIENT = EngineSettings(leave_timeout_s=5, hold_items=16, hold_s=1000, longest_hold_s=1000)


class Blocks(MemoryJournal):
    """Remembers what was committed together."""

    def __init__(self, full_at: int | None = None) -> None:
        super().__init__(full_at)
        self.blocks: list[list[str]] = []

    @contextmanager
    def together(self) -> Iterator[None]:
        self.blocks.append([])
        with super().together():
            yield

    def commit(self, job: str, entry: JournalEntry) -> Sequence[Committed]:
        self.blocks[-1].append(f"{entry.stage}{entry.index}")
        return super().commit(job, entry)


@pytest.fixture
def journal() -> Blocks:
    return Blocks()


def names(stage: str, indices: Sequence[int]) -> list[str]:
    return [f"{stage}{index}" for index in indices]


def test_short_items_are_committed_several_at_a_time(tmp_path: Path, journal: Blocks) -> None:
    items = [echo(str(n)) for n in range(20)]
    ScriptedEngine(tmp_path / "log", journal, PATIENT).run(Plot(((work("timing", *items, worker="device"),),)))
    assert journal.blocks == [names("timing", range(16)), names("timing", range(16, 20))]


def test_a_stage_is_over_only_when_its_items_are_committed(tmp_path: Path, journal: Blocks) -> None:
    works = (work("build", *map(echo, "abc")), work("timing", echo("d"), worker="device", after=("build",)))
    story = told(ScriptedEngine(tmp_path / "log", journal, PATIENT).run(Plot((works,))))
    assert [sorted(block) for block in journal.blocks] == [names("build", range(3)), ["timing0"]]
    assert story.closed == ("build", "timing")
    assert story.events == tuple(journal.history("j"))


def test_what_has_ended_is_not_held_for_long_while_another_item_takes_its_time(tmp_path: Path, journal: Blocks) -> None:
    settings = EngineSettings(leave_timeout_s=5, hold_s=1000, longest_hold_s=0.05)
    slow = Deed(Act.HANG)
    ScriptedEngine(tmp_path / "log", journal, settings).run(Plot(((work("build", echo("quick"), slow, timeout_s=1),),)))
    assert journal.blocks == [["build0"], ["build1"]]


def test_an_item_that_failed_is_committed_with_the_others(tmp_path: Path, journal: Blocks) -> None:
    items = (echo("good"), Deed(Act.FAIL, "no such instruction"), echo("better"))
    end = ScriptedEngine(tmp_path / "log", journal, PATIENT).run(Plot(((work("timing", *items, worker="device"),),)))
    assert journal.blocks == [names("timing", range(3))]
    assert [status for status, _ in ends(told(end).events).values()] == [
        ItemStatus.OK, ItemStatus.FAILED, ItemStatus.OK,
    ]  # fmt: skip


def test_a_full_disk_leaves_nothing_of_what_was_held(tmp_path: Path) -> None:
    full = Blocks(full_at=2)
    plot = Plot(((work("timing", *map(echo, "abcd"), worker="device"),),))
    with pytest.raises(OSError, match="no space left"):
        ScriptedEngine(tmp_path / "log", full, PATIENT).run(plot)
    assert full.history("j") == ()
    full.full_at = None
    assert len(told(ScriptedEngine(tmp_path / "log", full, PATIENT).run(plot)).events) == 4


def test_who_leaves_keeps_what_has_ended(tmp_path: Path, journal: Blocks) -> None:
    bench = ScriptedEngine(tmp_path / "log", journal, PATIENT)
    started = tmp_path / "started"
    plot = Plot(((work("timing", echo("done"), Deed(Act.HANG, once=str(started)), worker="device"),),))

    def leave_in_mid_stage() -> None:
        while not started.exists():
            time.sleep(0.01)
        bench.engine.leave()

    leaver = threading.Thread(target=leave_in_mid_stage)
    leaver.start()
    with bench.engine:
        bench.engine.add(JobLaunch("j", JOB, plot.encode()))
        bench.engine.serve()
    leaver.join()
    assert [event.payload for event in journal.history("j")] == [b"done"]
