from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from kintune.core.report import FastestBaseline, LatencyForecast
from kintune.core.stage_results import StageName
from kintune.terminal.display import open_display, open_fleet_display
from kintune.terminal.live import LiveDisplay, LiveFleet, fleet_picture, picture
from tests.support.reports import example_progress


class Terminal(io.StringIO):
    """A stream that claims to be a terminal, and counts how often it was drawn on."""

    def isatty(self) -> bool:
        return True


def render(**changes: object) -> str:
    console = Console(file=io.StringIO(), width=100, record=True)
    console.print(picture("resnet18, target native", example_progress(**changes)))
    return console.export_text()


def test_the_picture_holds_all_that_is_known() -> None:
    text = render()
    for part in (
        "resnet18, target native",
        "384 of 1000 trials",
        "about 6 min left",
        "estimated 15.0 ms, 2.00x as fast as untuned (30.0 ms)",
        "profile conv2d_7",
        "3 candidates failed",
        "128 measurements reused",
    ):
        assert part in text
    assert ["conv2d", "11", "320", "2.40x"] in [line.split() for line in text.splitlines()]


def test_the_picture_says_what_is_foretold() -> None:
    assert "likely 11.0 ms to 16.0 ms at the end" in render(forecast=LatencyForecast(11.0, 16.0))


def test_a_job_that_knows_nothing_yet_can_be_drawn() -> None:
    text = render(
        best_ms=None, untuned_ms=None, families=(), failures={}, reused_records=0, trials=0, trials_total=None
    )
    assert "no latency known yet" in text
    assert "family" not in text


def test_reports_in_quick_succession_are_drawn_once_and_the_last_one_stays() -> None:
    terminal = Terminal()
    display = LiveDisplay("resnet18", terminal, tick_s=None)
    display.show(example_progress(elapsed_s=1.0, trials=1))
    drawn = terminal.getvalue()
    display.show(example_progress(elapsed_s=1.1, trials=2))
    assert terminal.getvalue() == drawn
    display.close()
    assert "2 of 1000 trials" in terminal.getvalue()[len(drawn) :]


@pytest.mark.parametrize(("seconds", "said"), [(140.0, "05:32, about 3 min left"), (9000.0, "2:33:12, about 1 s left")])
def test_times_go_on_in_a_long_stage(seconds: float, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    terminal, now = Terminal(), [50.0]
    display = LiveDisplay("resnet18", terminal, tick_s=0.01, now=lambda: now[0])
    display.show(example_progress())
    assert "03:12, about 6 min left" in terminal.getvalue()
    now[0] += seconds
    while said not in terminal.getvalue():
        time.sleep(0.01)
    display.close()


def test_a_new_stage_is_drawn_at_once() -> None:
    terminal = Terminal()
    display = LiveDisplay("resnet18", terminal, tick_s=None)
    display.show(example_progress(elapsed_s=1.0))
    drawn = terminal.getvalue()
    display.show(example_progress(elapsed_s=1.0, stage=StageName.CONFIRM))
    assert "confirm" in terminal.getvalue()[len(drawn) :]
    display.close()


def test_elsewhere_each_line_names_its_model() -> None:
    stream = io.StringIO()
    display = open_fleet_display("2 models", ["resnet18", "bert"], stream=stream)
    display.show(1, example_progress())
    display.close()
    title, *waiting, line = stream.getvalue().splitlines()
    assert title == "2 models"
    assert waiting == ["resnet18: waiting for its turn", "bert    : waiting for its turn"]
    assert line.startswith("bert    : 384 of 1000 trials")


def test_quiet_shows_nothing() -> None:
    stream = io.StringIO()
    display = open_fleet_display("2 models", ["a", "b"], quiet=True, stream=stream)
    display.show(0, example_progress())
    display.close()
    assert stream.getvalue() == ""


def test_a_terminal_gets_a_table() -> None:
    stream = Terminal()
    display = open_fleet_display("2 models", ["resnet18", "bert"], stream=stream)
    assert isinstance(display, LiveFleet)
    display.show(0, example_progress())
    display.close()
    assert "waiting for its turn" in stream.getvalue()


def test_the_table_has_a_line_for_each_model() -> None:
    console = Console(file=io.StringIO(), width=120, record=True)
    console.print(fleet_picture("2 models, policy fair", ["resnet18", "bert"], [example_progress(), None]))
    title, head, one, two = (line.rstrip() for line in console.export_text().splitlines())
    assert title == "2 models, policy fair"
    assert head.split() == ["model", "trials", "time", "left", "latency", "gain", "now"]
    assert one.split("  ")[0] == "resnet18"
    for part in ("384 of 1000", "03:12", "6 min", "15.0 ms", "2.00x", "profile conv2d_7"):
        assert part in one
    assert two.split() == ["bert", "waiting", "for", "its", "turn"]


FASTEST = FastestBaseline("onnxruntime", 20.0, 0.75)


def test_against_other_runtimes_the_untuned_network_is_a_detail() -> None:
    lines = [line.rstrip() for line in render(fastest_baseline=FASTEST).splitlines()]
    at = lines.index("estimated 15.0 ms, 0.75 of onnxruntime's 20.0 ms")
    assert lines[at + 2] == "2.00x as fast as untuned (30.0 ms)"


def test_the_table_has_the_share_of_the_fastest_where_others_were_timed() -> None:
    console = Console(file=io.StringIO(), width=120, record=True)
    reports = [example_progress(fastest_baseline=FASTEST), example_progress()]
    console.print(fleet_picture("2 models", ["resnet18", "bert"], reports))
    _, head, one, two = (line.rstrip() for line in console.export_text().splitlines())
    assert "of fastest" in head
    assert "0.75" in one
    assert "2.00x" not in two


@pytest.mark.parametrize("width", [40, 60])
def test_no_picture_is_wider_than_the_terminal(width: int) -> None:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(picture("resnet18, target native", example_progress()))
    console.print(fleet_picture("2 models", ["resnet18", "mobilenet_v2"], [example_progress(), None]))
    assert max(len(line.rstrip()) for line in console.file.getvalue().splitlines()) <= width  # type: ignore[attr-defined]


EVIL = "net\x1b[2J\x9b\x07"


@pytest.mark.parametrize("stream", [Terminal(), io.StringIO()])
def test_control_characters_of_names_do_not_reach_the_terminal(stream: io.StringIO) -> None:
    for display in (
        open_fleet_display(EVIL, [EVIL], stream=stream),
        open_fleet_display("", [EVIL], stream=stream),
    ):
        display.show(0, example_progress(subgraph=EVIL, failures={EVIL: 1}))
        display.close()
    single = open_display(EVIL, stream=stream)
    single.show(example_progress(subgraph=EVIL, failures={EVIL: 1}))
    single.close()
    assert "net [2J" in stream.getvalue()
    for evil in ("\x1b[2J\x9b", "\x9b", "\x07"):
        assert evil not in stream.getvalue()
