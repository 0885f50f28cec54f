"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, get_args

import click
import msgspec

from kintune.cli.completing import offering
from kintune.cli.sections import ConfigOption
from kintune.core.config import PolicyName, TuneConfig
from kintune.core.constraints import OptionField, fields_of

__all__ = [
    "POLICY_NAMES",
    "config_options",
    "constant_option",
    "html_option",
    "policy_option",
    "quiet_option",
    "records_option",
    "shape_option",
    "trusted_option",
    "verbose_option",
]

Command = TypeVar("Command", bound=Callable[..., Any])

html_option = click.option(
    "--html", "html_target", metavar="FILE", help="Write the report as one self-contained HTML file."
)

shape_option = click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="INPUT=1x3x224x224",
    help="The shape of an input with dynamic dimensions; can be repeated.  Without it, ranges are chosen by what the "
    "dimensions are, and the summary names them.  In braces, and in quotes, a range gives a "
    "result that runs with any extent in it, 'ids=1x{1..512}' or in steps '{8..512:8}', and alternatives one that runs "
    "with each of them: 'ids=1x{32,64}'.",
)

POLICY_NAMES: tuple[str, ...] = get_args(PolicyName)
"""The scheduling policies; their classes are imported where they are needed."""


def policy_option(help: str) -> Callable[[Command], Command]:
    """Return the option `--policy`; `help` says what is scheduled by it."""
    return click.option(
        "--policy",
        default="predictive",
        show_default=True,
        shell_complete=offering(POLICY_NAMES),
        help=f"{help}: {', '.join(POLICY_NAMES)}.",
    )


trusted_option = click.option(
    "--trusted", metavar="PUBLIC.pem", help="Open FILE.kt only if it was signed with this key: see 'kintune sign'."
)

quiet_option = click.option("-q", "--quiet", is_flag=True, help="Show no progress, only the summary.")

verbose_option = click.option(
    "-v", "--verbose", is_flag=True, help="Show a line for each step, instead of a display that is redrawn."
)

constant_option = click.option(
    "--constant",
    "constants",
    multiple=True,
    metavar="INPUT=VALUE",
    help="Make an input a constant: sizes=1,3,8,8, flag=true or table=FILE.npy; can be repeated.",
)


def config_options(
    names: Sequence[str], config: type[msgspec.Struct] = TuneConfig, help: Mapping[str, str] | None = None
) -> Callable[[Command], Command]:
    """Return a decorator that adds an option for each of the named fields of `config`, in their order.

    Name, type, default and help come from the struct; `help` replaces some of the texts.
    """
    fields = fields_of(config)

    def add(command: Command) -> Command:
        """Add the options to a command."""
        for name in reversed(names):
            command = _option(fields[name], (help or {}).get(name))(command)
        return command

    return add


def _option(field: OptionField, text: str | None) -> Callable[[Command], Command]:
    shown = field.shown
    text = text or shown.off or field.help
    settings: dict[str, Any] = {"is_flag": True, "callback": lambda _context, _option, given: given != field.default}
    if field.kind is not bool:
        text += f"  [default: {shown.without}]" if shown.without and field.default is None else ""
        default = None if field.kind is tuple else field.default
        offered = tuple(map(str, field.choices))
        settings = {
            "type": str if field.kind is tuple else field.kind,
            "default": default,
            "show_default": default is not None,
            "metavar": shown.metavar,
            "shell_complete": offering(offered) if offered else None,
        }
    names = [*filter(None, [shown.short]), field.flag, field.name]
    return click.option(*names, cls=ConfigOption, shown=shown, help=text, **settings)


records_option = config_options(["records"])
