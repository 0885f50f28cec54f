from __future__ import annotations

import io

import msgspec

from kintune.core.report import FastestBaseline, LatencyForecast, ProgressReport
from kintune.core.stage_results import StageName
from kintune.terminal.display import PlainDisplay, QuietDisplay, open_display
from kintune.terminal.live import LiveDisplay
from tests.support.reports import example_progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_live_picture() -> None:
    display = open_display("resnet18", stream=Terminal())
    display.close()
    assert isinstance(display, LiveDisplay)


def test_a_pipe_gets_plain_lines() -> None:
    assert isinstance(open_display("resnet18", stream=io.StringIO()), PlainDisplay)


def test_quiet_only_says_for_whom_it_waits() -> None:
    terminal = Terminal()
    display = open_display("resnet18", quiet=True, stream=terminal)
    display.show(example_progress())
    assert terminal.getvalue() == ""
    waiting = example_progress(phase="waiting for the cores, held by 4711 kintune tune net.onnx")
    display.show(waiting)
    display.show(waiting)
    display.close()
    assert isinstance(display, QuietDisplay)
    assert terminal.getvalue() == f"{waiting.phase}\n"


def lines_of(*reports: ProgressReport) -> list[str]:
    """What is written for the reports; the title is left out."""
    stream = io.StringIO()
    display = PlainDisplay("resnet18", stream)
    for report in reports:
        display.show(report)
    return stream.getvalue().splitlines()[1:]


def test_a_line_says_effort_latency_stage_and_failures() -> None:
    assert lines_of(example_progress()) == [
        "384 of 1000 trials, 03:12, about 6 min left; estimated 15.0 ms, 2.00x as fast as untuned (30.0 ms); "
        "profile conv2d_7; 3 candidates failed (build timed out 2, run failed 1); 128 measurements reused"
    ]


def test_the_first_forecast_is_a_milestone() -> None:
    report = example_progress(elapsed_s=1.0)
    foretold = msgspec.structs.replace(report, elapsed_s=1.5, forecast=LatencyForecast(11.0, 16.0))
    _, second = lines_of(report, foretold)
    assert "; likely 11.0 ms to 16.0 ms at the end; profile conv2d_7" in second


def test_that_others_use_the_cores_is_said() -> None:
    (line,) = lines_of(example_progress(disturbed=200))
    assert line.endswith("; other programs use the cores: 200 of 384 candidates had to be timed again")


def test_routine_reports_are_ten_seconds_apart() -> None:
    stages = [StageName.SELECT, StageName.BUILD, StageName.PROFILE, StageName.UPDATE]
    reports = [example_progress(stage=stages[i % 4], elapsed_s=float(i), trials=i) for i in range(31)]
    assert [line.split()[0] for line in lines_of(*reports)] == ["0", "10", "20", "30"]


def test_the_start_of_a_stage_that_happens_once_is_a_milestone() -> None:
    reports = [example_progress(stage=stage) for stage in (StageName.UPDATE, StageName.CONFIRM, StageName.PACKAGE)]
    assert len(lines_of(*reports)) == 3


def test_a_new_phase_is_a_milestone() -> None:
    waiting = example_progress(phase="waiting for the device, held by process 4711")
    lines = lines_of(example_progress(), waiting, waiting)
    assert len(lines) == 2
    assert "held by process 4711" in lines[1]


def test_the_first_latency_is_a_milestone() -> None:
    lines = lines_of(example_progress(best_ms=None), example_progress(best_ms=None), example_progress())
    assert len(lines) == 2
    assert "no latency known yet" in lines[0]


def test_the_first_time_of_other_runtimes_is_a_milestone() -> None:
    early = example_progress(best_ms=None)
    lines = lines_of(
        early, msgspec.structs.replace(early, fastest_baseline=FastestBaseline("onnxruntime", 1.74)), early
    )
    assert "no latency known yet; onnxruntime takes 1.74 ms" in lines[1]


def test_closing_writes_what_was_held_back_once() -> None:
    stream = io.StringIO()
    display = PlainDisplay("resnet18", stream)
    display.show(example_progress())
    display.show(example_progress(trials=385))
    display.close()
    display.close()
    assert [line.split()[0] for line in stream.getvalue().splitlines()] == ["resnet18", "384", "385"]


def test_without_a_budget_in_trials_no_total_is_claimed() -> None:
    assert lines_of(example_progress(trials_total=None, time_left_s=None))[0].startswith("384 trials, 03:12; ")
