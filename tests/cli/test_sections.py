"""Help under headings, within the width of the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import pytest

from kintune.cli.lazy import LazyGroup
from kintune.cli.sections import TUNE_SECTIONS, SectionedCommand
from tests.cli.test_root import COMMANDS, IDS

if TYPE_CHECKING:
    from tests.support.command import Kintune


def test_commands_stand_under_headings_common_ones_first(kintune: Kintune) -> None:
    said = kintune("--help").out
    headings = ["A model:", "Deployment:", "A service:", "Records and this machine:", "The laboratory:"]
    places = [said.index(heading) for heading in headings]
    assert places == sorted(places)
    assert places[0] < said.index("\n  tune ") < said.index("\n  run ") < said.index("\n  evaluate ") < places[1]
    assert said.index("\n  bench ") > places[-1]


def test_options_of_tune_stand_under_headings(kintune: Kintune) -> None:
    said = kintune("tune", "--help").out
    places = [said.index(f"{heading}:") for heading, _ in TUNE_SECTIONS]
    assert places == sorted(places)
    assert said.index("When to stop:") < said.index("--minutes") < said.index("The result:") < said.index("--output")
    assert said.index("The search, for experts:") < said.index("--families")


def test_arguments_are_not_listed_as_options(kintune: Kintune) -> None:
    said = kintune("compile", "--help").out
    assert "\n  MODEL" not in said
    assert not any(line.endswith(" ") for line in said.splitlines())


@pytest.mark.parametrize("command", ["tune", "compile", "submit"])
def test_help_tells_what_happens_without_an_option(kintune: Kintune, command: str) -> None:
    said = " ".join(kintune(command, "--help").out.split())
    assert "as a share of their norm. [default: 0.01]" in said
    assert ("[default: MODEL.kt in the working directory]" in said) == (command != "submit")


def test_an_option_without_a_heading_is_listed_last() -> None:
    options = [click.Option(["--one"], help="First."), click.Option(["--two"], help="Second.")]
    command = SectionedCommand("x", params=options, sections=[("Some", ("two", "there is none"))])
    with click.Context(command) as context:
        said = command.get_help(context)
    assert said.index("Some:") < said.index("--two") < said.index("Other options:") < said.index("--one")
    assert "--help" in said


@pytest.mark.parametrize("width", [40, 59, 80, 200])
@pytest.mark.parametrize("path", [path for path, _, _ in COMMANDS], ids=IDS)
def test_help_is_never_wider_than_the_terminal(
    kintune: Kintune, monkeypatch: pytest.MonkeyPatch, path: tuple[str, ...], width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    said = kintune(*path, "--help")
    assert said.code == 0
    assert max(map(len, said.out.splitlines())) <= min(width, 100)


def test_all_commands_ask_for_help_by_the_same_letters(kintune: Kintune) -> None:
    assert kintune("-h") == kintune("--help")
    assert kintune("records", "list", "-h") == kintune("records", "list", "--help")


def test_a_short_option_means_the_same_everywhere() -> None:
    """`-o` is where the result goes, `-q` and `-v` what is shown, `-j` how many at once."""
    meanings: dict[str, set[str]] = {}
    for _, _, command in COMMANDS:
        if isinstance(command, LazyGroup):
            continue
        for param in command.params:
            names = [name for name in param.opts if name.startswith("--")]
            for short in param.opts:
                if not short.startswith("--") and isinstance(param, click.Option):
                    meanings.setdefault(short, set()).update(names)
    assert meanings == {
        "-o": {"--output"},
        "-q": {"--quiet"},
        "-v": {"--verbose"},
        "-j": {"--cores", "--jobs-at-once"},
    }


def test_wherever_there_is_an_output_it_has_the_short_option() -> None:
    for path, _, command in COMMANDS:
        for param in command.params:
            for long, short in (("--output", "-o"), ("--quiet", "-q"), ("--verbose", "-v")):
                assert long not in param.opts or short in param.opts, path
