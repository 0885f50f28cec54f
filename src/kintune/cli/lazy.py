"""A group of commands that are imported when they are called, so that `--help` costs next to nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kintune.cli.completing import complete_by_metavar
from kintune.cli.sections import HelpContext
from kintune.errors import EnvironmentProblem

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

__all__ = ["Entry", "LazyGroup"]


class Entry(NamedTuple):
    """The module and attribute of a command, and the line that lists it (the same as the command's own short help).

    A named tuple, since importing msgspec takes a third of the time of `kintune --help`.

    `extra` names the optional dependencies that it needs, `after` the command behind which a package's help lists it,
    and `section` the heading under which it is listed.
    """

    module: str
    summary: str
    attribute: str = "command"
    extra: str = ""
    after: str = ""
    section: str = "Commands"


class LazyGroup(click.Group):
    """A group whose commands are listed in a table; called without a command, it shows its help.

    `extend` returns the table with the commands of other packages; it is called when a command is not in the table, or
    when all commands are listed.
    """

    context_class = HelpContext

    def __init__(
        self,
        name: str,
        entries: Mapping[str, Entry],
        help: str,
        extend: Callable[[Mapping[str, Entry]], Mapping[str, Entry]] = dict,
        **settings: Any,
    ) -> None:
        super().__init__(name, help=help, callback=_show_help, invoke_without_command=True, **settings)
        self._own = dict(entries)
        self._extend = extend

    @cached_property
    def entries(self) -> Mapping[str, Entry]:
        """The commands with those of other packages, in the order in which they are listed."""
        return self._extend(self._own)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the commands in the order in which they are listed."""
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command; None when there is none of that name.

        Raises:
            EnvironmentProblem: what it needs besides is not installed.
        """
        entry = self._own.get(cmd_name) or self.entries.get(cmd_name)
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
        command.context_class = HelpContext
        complete_by_metavar(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or say which there are."""
        name = args[0]
        if name not in self._own and name not in self.entries:
            from difflib import get_close_matches  # not needed otherwise

            close = get_close_matches(name, self.entries, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(self.entries)}"
            raise click.UsageError(f"there is no command {name!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from the table under their headings, without importing them.

        Headings of other packages come last.
        """
        width = max(map(len, self.entries), default=0)
        for section in dict.fromkeys(entry.section for entry in (*self._own.values(), *self.entries.values())):
            listed = [(name, entry.summary) for name, entry in self.entries.items() if entry.section == section]
            with formatter.section(section):
                formatter.write_dl([(name.ljust(width), summary) for name, summary in listed])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The commands that begin like this, from the table, or the options."""
        from click.shell_completion import CompletionItem

        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        return [
            CompletionItem(name, help=entry.summary)
            for name, entry in self.entries.items()
            if name.startswith(incomplete)
        ]


@click.pass_context
def _show_help(ctx: click.Context) -> None:
    """What a group does by itself: nothing, or its help when no command follows."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
