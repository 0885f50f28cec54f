"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click
import msgspec

from kintune.cli.completing import offering
from kintune.core.config import DEFAULT_MAX_ERROR, DEFAULT_TRIALS, Strategy, TuneConfig
from kintune.core.constraints import Field, fields_of

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

_SPELLED = {"inputs": "--input"}
_METAVARS = {
    "inputs": "FILE.npz|DIR",
    "calibrate": "FILE.npz|DIR",
    "records": "FILE",
    "output": "FILE.kt",
    "log": "FILE",
    "webhook": "URL",
}
_SHORT = {"output": "-o"}
_OFFERED = {"families": ("op", "hash", "measured", "ind", "none")}
"""What a shell offers for options that are no `Literal`."""

_OF_JOBS = {"max_error": f"{DEFAULT_MAX_ERROR:g}"}
"""What happens without an option whose default is None, also where it is one of a job at a service."""

_WITHOUT = {
    **_OF_JOBS,
    "threads": "all physical cores",
    "trials": f"{DEFAULT_TRIALS} if no other limit",
    "round_size": str(Strategy().round_size),
    "inputs": "random ones",
    "output": "MODEL.kt in the working directory",
    "records": "one in your data directory",
    "log": "one in your log directory",
}
"""What happens without an option of `TuneConfig` whose default is None."""

_SWITCHED_OFF = {
    "carry": "Do not try a subgraph's good programs on others of its family.",
    "onnxruntime": "Run no node in onnxruntime: refuse nodes that cannot be compiled, and keep slower ones.",
    "kin": "Do not start from the programs and models of other networks' subgraphs.",
}
"""The help of an option that switches off what is on by default."""

html_option = click.option(
    "--html", "html_target", metavar="FILE", help="Write the report as one self-contained HTML file."
)

shape_option = click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="INPUT=1x3x224x224",
    help="Fix the shape of an input with dynamic dimensions; can be repeated.  Alternatives in braces, and in "
    "quotes, give one result that runs with all of them: 'ids=1x{32,64}'.",
)

POLICY_NAMES = ("sequential", "synchronous", "uncontrolled", "greedy", "fair", "predictive")
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
    names: Sequence[str],
    config: type[msgspec.Struct] = TuneConfig,
    help: Mapping[str, str] | None = None,
    optional: Sequence[str] = (),
) -> Callable[[Command], Command]:
    """Return a decorator that adds an option for each of the named fields of `config`, in their order.

    Name, type, default and help come from the struct; `help` replaces some of the texts.  An option that is `optional`
    is None where it is not given.
    """
    fields = fields_of(config)

    def add(command: Command) -> Command:
        """Add the options to a command."""
        for name in reversed(names):
            field = fields[name]._replace(default=None) if name in optional else fields[name]
            command = _option(field, (help or {}).get(name), config)(command)
        return command

    return add


def _option(field: Field, text: str | None, config: type[msgspec.Struct]) -> Callable[[Command], Command]:
    spelled = _SPELLED.get(field.name, f"--{field.name.replace('_', '-')}")
    if field.kind is bool and field.default:
        off = text or _SWITCHED_OFF[field.name]
        flag = f"--no-{field.name.replace('_', '-')}"
        return click.option(
            flag, field.name, is_flag=True, help=off, callback=lambda _context, _option, given: not given
        )
    if field.kind is bool:
        return click.option(spelled, field.name, is_flag=True, help=text or field.help)
    text = text or field.help
    without = _WITHOUT if config is TuneConfig else _OF_JOBS
    if field.default is None and field.name in without:
        text += f"  [default: {without[field.name]}]"
    offered = tuple(map(str, field.choices)) or _OFFERED.get(field.name)
    return click.option(
        *([_SHORT[field.name]] if field.name in _SHORT else []),
        spelled,
        field.name,
        type=field.kind,
        default=field.default,
        show_default=field.default is not None,
        metavar=_METAVARS.get(field.name),
        shell_complete=None if offered is None else offering(offered),
        help=text,
    )


records_option = config_options(["records"])
