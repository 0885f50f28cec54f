from __future__ import annotations

from pathlib import Path

import pytest

from kintune.scheduler.resources import Device, Host, Placement
from kintune_lab.simulate.gantt import draw_gantt, rows_of
from kintune_lab.simulate.history import Ending, ScheduleHistory, SimulatedJob, Span

RESOURCES = (Host("h", 2, 0), Device("g", "gpu"))


def span(job: str, start: float, end: float, cores: int = 1, device: str | None = None) -> Span:
    placement = Placement(device=device, exclusive=True) if device else Placement("h", cores)
    return Span(job, f"s{start}", "build", placement, start, start, end, end - start)


def rows(*spans: Span) -> dict[str, list[str]]:
    return {name: [each.job for each in line] for name, line in rows_of(ScheduleHistory(spans, ()), RESOURCES)}


def test_there_is_a_row_for_each_core_and_each_device() -> None:
    assert rows(span("a", 0, 2), span("b", 1, 3), span("c", 1, 2, device="g")) == {
        "h core 0": ["a"],
        "h core 1": ["b"],
        "g": ["c"],
    }


def test_who_has_several_cores_stands_in_several_rows() -> None:
    assert rows(span("a", 0, 2, cores=2), span("b", 2, 3)) == {"h core 0": ["a", "b"], "h core 1": ["a"], "g": []}


def test_what_is_booked_above_what_there_is_gets_rows_of_its_own() -> None:
    assert rows(span("a", 0, 2, cores=2), span("b", 1, 3)) == {
        "h core 0": ["a"],
        "h core 1": ["a"],
        "h core 2": ["b"],
        "g": [],
    }


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_a_picture_is_drawn(tmp_path: Path, suffix: str) -> None:
    spans = (span("a", 0, 2), span("b", 1, 3, device="g"))
    jobs = tuple(SimulatedJob(job, 1.0, 0.0, 3.0, Ending.DONE, 2.0) for job in "ab")
    path = tmp_path / f"picture.{suffix}"
    draw_gantt("two jobs", ScheduleHistory(spans, jobs), RESOURCES, path, until=2.5)
    assert path.stat().st_size > 1000
    if suffix == "svg":
        text = path.read_text()
        assert "two jobs" in text
        assert ">g<" in text.replace("\n", "")


def test_rows_that_are_left_out_are_counted_in_the_title(tmp_path: Path) -> None:
    path = tmp_path / "picture.svg"
    draw_gantt("a $wide$ host", ScheduleHistory((span("a", 0, 2),), ()), (Host("h", 61, 0), Device("g", "gpu")), path)
    assert "a $wide$ host (first 60 of 62 rows)" in path.read_text()
    draw_gantt("all", ScheduleHistory((span("a", 0, 2),), ()), (Host("h", 59, 0), Device("g", "gpu")), path)
    assert "first" not in path.read_text()
