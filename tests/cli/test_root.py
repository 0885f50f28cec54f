from __future__ import annotations

from typing import TYPE_CHECKING

import click
import pytest

from kintune.cli.lazy import LazyGroup
from kintune.cli.root import root

if TYPE_CHECKING:
    from tests.support.command import Kintune


def all_commands(group: LazyGroup, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], str, click.Command]]:
    """Every command below `group`: its path, the line that lists it, and itself."""
    found = []
    for name, entry in group.entries.items():
        command = group.get_command(click.Context(group), name)
        assert command is not None
        found.append(((*path, name), entry.summary, command))
        if isinstance(command, LazyGroup):
            found.extend(all_commands(command, (*path, name)))
    return found


COMMANDS = all_commands(root)
IDS = [" ".join(path) for path, _, _ in COMMANDS]


SAY_NOTHING = {
    ("serve",),
    *((name, "start") for name in ("device", "worker")),
    *(("service", name) for name in ("add-user", "lock", "add-token", "revoke", "forget-type", "backup", "restore")),
    ("completion",),
    ("job", "download"),
}
"""Commands that do something, and have nothing to tell that a machine could not read from their line or exit code."""


@pytest.mark.parametrize(("path", "summary", "command"), COMMANDS, ids=IDS)
def test_a_command_says_of_itself_what_the_list_says(
    path: tuple[str, ...], summary: str, command: click.Command
) -> None:
    assert command.get_short_help_str(limit=1000) == summary
    assert command.name == path[-1]


@pytest.mark.parametrize(("path", "_summary", "command"), COMMANDS, ids=IDS)
def test_every_command_speaks_to_machines(path: tuple[str, ...], _summary: str, command: click.Command) -> None:
    if not isinstance(command, LazyGroup) and path not in SAY_NOTHING:
        assert any("--json" in option.opts for option in command.params)


@pytest.mark.parametrize("path", [path for path, _, _ in COMMANDS], ids=IDS)
def test_every_command_has_help(kintune: Kintune, path: tuple[str, ...]) -> None:
    said = kintune(*path, "--help")
    assert said.code == 0
    assert said.out.startswith(f"Usage: kintune {' '.join(path)}")


def test_no_command_is_a_question_for_help(kintune: Kintune) -> None:
    assert kintune() == kintune("--help")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["tun"], "kintune: error: there is no command 'tun'; did you mean 'tune'? (see kintune --help)\n"),
        (["records", "zzz"], "kintune: error: there is no command 'zzz'; there are: "),
        (["--loud"], "kintune: error: No such option"),
    ],
)
def test_what_is_not_there_is_named(kintune: Kintune, arguments: list[str], line: str) -> None:
    said = kintune(*arguments)
    assert said.code == 2
    assert said.err.startswith(line)
    assert said.err.count("\n") == 1
