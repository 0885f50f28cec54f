"""The list of steps: progress, commands with a limit, and what is said of failures."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest

from tests.support.processes import wait_until_gone
from tests.tools.test_docs_site import tool


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_command_that_fails_is_told_with_what_it_said(tmp_path: Path) -> None:
    checklist = tool("checklist")
    runner = checklist.Runner()
    with pytest.raises(checklist.Failed, match=r"^python\S* -c .* ended with code 3$") as failed:
        runner.run(sys.executable, "-c", "import sys; print('not so'); sys.exit(3)", folder=tmp_path)
    assert failed.value.printed.endswith("\nnot so")
    assert runner.run(sys.executable, "-c", "print(1)", folder=tmp_path) == "1\n"
    with pytest.raises(checklist.Failed, match="no/such cannot be started: No such file"):
        runner.run("no/such", folder=tmp_path)


def test_a_command_that_takes_too_long_is_ended_with_all_that_it_has_started(tmp_path: Path) -> None:
    checklist = tool("checklist")
    seen: list[str] = []
    script = "sleep 600 & echo $! >child; wait"
    with pytest.raises(checklist.Failed, match="did not end within 1 s"):
        checklist.Runner(seen.append).run("sh", "-c", script, folder=tmp_path, limit_s=1.0)
    assert seen[0] == f"sh -c {script}"
    child = int((tmp_path / "child").read_text())
    wait_until_gone(child)  # it may still run when the signal has been sent


def test_an_interrupted_command_ends(tmp_path: Path) -> None:
    checklist = tool("checklist")

    def interrupt(doing: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        checklist.Runner(interrupt).run("sh", "-c", "echo $$ >own; exec sleep 600", folder=tmp_path)
    own = int((tmp_path / "own").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(own, 0)


def test_the_time_left_follows_the_pace_of_the_steps_before() -> None:
    checklist = tool("checklist")
    clock, output = Clock(), io.StringIO()
    steps = [checklist.Step(what, seconds, str) for what, seconds in (("a", 60), ("b", 20), ("c", 40))]
    progress = checklist.Progress(steps, output, clock)
    progress.begin()
    assert progress.left_s == 120
    clock.now += 180
    progress.end("well")
    progress.begin()
    assert progress.left_s == 120  # twice as slow as expected: the first step counts as much as a minute as expected
    clock.now += 31
    progress.tick("pip install")
    assert progress.left_s == 89
    clock.now += 100
    assert progress.left_s == 80
    assert output.getvalue().splitlines() == [
        "[1/3] a (about 2 min left)",
        "      done in 3 min: well",
        "[2/3] b (about 2 min left)",
        "      31 s, about 89 s left: pip install",
    ]


def test_a_terminal_has_one_line_for_each_step() -> None:
    checklist = tool("checklist")
    clock, output = Clock(), Terminal()
    progress = checklist.Progress([checklist.Step("a", 10, str)], output, clock)
    progress.begin()
    clock.now += 4
    progress.tick("pip install")
    progress.end("well")
    shown = output.getvalue().split("\r\033[K")
    assert shown == ["", "[1/1] a: 0 s, about 10 s left", "[1/1] a: 4 s, about 6 s left", "[1/1] a done in 4 s: well\n"]


def test_the_first_step_that_fails_ends_the_list_and_is_named_last() -> None:
    checklist = tool("checklist")
    done: list[str] = []

    def failing() -> str:
        raise checklist.Failed("it ended with code 1", "line 1\nline 2")

    def mistaken() -> str:
        raise KeyError("runs")

    for step, last in ((failing, "it ended with code 1"), (mistaken, "KeyError: 'runs'")):
        output = io.StringIO()
        steps = [checklist.Step("a", 1, lambda: "well"), checklist.Step("b", 1, step), checklist.Step("c", 1, done.pop)]
        assert not checklist.run_steps(checklist.Progress(steps, output, Clock()), steps)
        assert output.getvalue().splitlines()[-1] == f"failed at 2 of 3, b: {last}"
        assert "line 1\nline 2\n" in output.getvalue() or "Traceback" in output.getvalue()
