"""A group of commands that are imported when they are called, so that `--help` costs next to nothing."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click
import msgspec

from kintune.errors import EnvironmentProblem

__all__ = ["Entry", "LazyGroup"]


class Entry(msgspec.Struct, frozen=True):
    """Where a command is defined, and the line that lists it (the same as the command's own short help).

    `extra` names the optional dependencies that it needs.
    """

    module: str
    summary: str
    attribute: str = "command"
    extra: str = ""


class LazyGroup(click.Group):
    """A group whose commands stand in a table; called without a command, it shows its help."""

    def __init__(self, name: str, entries: Mapping[str, Entry], help: str, **settings: Any) -> None:
        super().__init__(name, help=help, callback=_show_help, invoke_without_command=True, **settings)
        self.entries = dict(entries)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands in the order of the table."""
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command; None when there is none of that name.

        Raises EnvironmentProblem when what it needs besides is not installed.
        """
        entry = self.entries.get(cmd_name)
        if entry is None:
            return None
        try:
            command: click.Command = getattr(import_module(entry.module), entry.attribute)
        except ModuleNotFoundError as error:
            if not entry.extra or (error.name or "").startswith("kintune"):
                raise
            raise EnvironmentProblem(
                f"{cmd_name} needs {error.name}; install it with: pip install 'kintune[{entry.extra}]'"
            ) from error
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or say which there are."""
        name = args[0]
        if name not in self.entries:
            close = get_close_matches(name, self.entries, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(self.entries)}"
            raise click.UsageError(f"there is no command {name!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from the table, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in self.entries.items()])


@click.pass_context
def _show_help(ctx: click.Context) -> None:
    """What a group does by itself: nothing, or its help when no command follows."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
