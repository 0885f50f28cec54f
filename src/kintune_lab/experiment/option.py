"""Options that a spec may set for an experiment and its methods."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, TypeAlias

import msgspec

from kintune.core.constraints import fields_of
from kintune.errors import InputError
from kintune.hardware.cores import choose_cores

__all__ = ["Option", "OptionError", "OptionKind", "OptionsByName", "Value", "option_of", "spelled", "threads_option"]


Value: TypeAlias = str | int | float | bool
"""One value of an option, as TOML writes it."""


class OptionKind(str, Enum):
    """What the values of an option are.

    A MODEL is what `kintune tune` takes (a path or `zoo:NAME`), and is imported once before the first cell runs.  A
    FILE must exist; paths are relative to the working directory.
    """

    TEXT = "a text"
    INTEGER = "a whole number"
    NUMBER = "a number"
    FLAG = "true or false"
    MODEL = "a model"
    FILE = "the path of a file"


class Option(msgspec.Struct, frozen=True):
    """One option: its kind, what it is when a spec does not set it, and what it may be.

    `default` None means that it is not set; `required` that a spec must set it.  Numbers lie between `low` and `high`,
    texts are among `choices`, where these are given.  `check` gets a value of the right kind and raises InputError,
    saying what is wrong with it.  `files` has the paths of the files that a TEXT names, whose contents count as well.
    `expand` has the values that a TEXT in the matrix stands for, such as all files of a folder; it raises InputError
    where there is none.
    """

    kind: OptionKind
    default: Value | None = None
    help: str = ""
    required: bool = False
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    check: Callable[[Value], object] | None = None
    files: Callable[[Value], Sequence[str]] | None = None
    expand: Callable[[str], Sequence[str]] | None = None

    def accept(self, value: object) -> Value:
        """The value as the experiment gets it: a whole number for a NUMBER becomes a float.

        Raises:
            InputError: the value is not allowed; the message names neither the option nor the value.
        """
        if isinstance(value, int) and abs(value) >> 63:
            raise InputError("must be less than 2**63")
        taken = self._of_kind(value)
        if isinstance(taken, (int, float)) and not isinstance(taken, bool):
            if self.low is not None and taken < self.low:
                raise InputError(f"must be {self.low:g} or more")
            if self.high is not None and taken > self.high:
                raise InputError(f"must be {self.high:g} or less")
        if self.choices and taken not in self.choices:
            raise InputError(f"must be one of {', '.join(self.choices)}")
        if self.check is not None:
            self.check(taken)
        return taken

    def _of_kind(self, value: object) -> Value:
        match self.kind:
            case OptionKind.FLAG if isinstance(value, bool):
                return value
            case OptionKind.INTEGER if isinstance(value, int) and not isinstance(value, bool):
                return value
            case OptionKind.NUMBER if isinstance(value, (int, float)) and not isinstance(value, bool):
                if math.isfinite(value):
                    return float(value)
            case OptionKind.TEXT | OptionKind.MODEL | OptionKind.FILE if isinstance(value, str):
                return value
        raise InputError(f"must be {self.kind.value}")


OptionsByName: TypeAlias = Mapping[str, Option]
"""Options by name."""


_KINDS = {bool: OptionKind.FLAG, int: OptionKind.INTEGER, float: OptionKind.NUMBER}


def option_of(struct: type[msgspec.Struct], name: str, **changes: Any) -> Option:
    """Return the option that is a field of `struct` (`kintune.core.constraints`), apart from `changes` to it."""
    field = fields_of(struct)[name]
    kind = _KINDS.get(field.kind, OptionKind.TEXT)
    choices = tuple(map(str, field.choices))
    found = Option(kind, field.default, field.help, low=field.meta.ge, high=field.meta.le, choices=choices)
    return msgspec.structs.replace(found, **changes)


def threads_option(what: str) -> Option:
    """The option of the number of threads that `what` has, which this machine must have as cores."""
    return Option(
        OptionKind.INTEGER,
        help=f"threads of the {what} (all physical cores)",
        low=1,
        check=lambda value: choose_cores(int(value)),
    )


def spelled(value: object) -> str:
    """A value as a spec writes it: `true`, `"op"`, `64`."""
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


class OptionError(InputError):
    """The value of a cell's option is wrong; `method` is the label of its method, empty for an option of the cell."""

    def __init__(self, option: str, problem: str, method: str = "") -> None:
        self.option = option
        self.problem = problem
        self.method = method
        super().__init__(f"{option} {problem}")
