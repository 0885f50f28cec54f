"""Options declared once: name, type, limits and words of each field of a struct, and values checked against them.

A field is annotated with `msgspec.Meta`: `ge`, `gt` and `le` limit a number, `description` is its help in one line.
`option` adds what the command line, the REST API, the portal, reports and the documentation say of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec

from kintune.errors import InputError

__all__ = ["OptionField", "Section", "Shown", "check_fields", "described", "fields_of", "limited", "option"]

_MOST_BITS = 1000  # of an integer: a float holds it, and it can be spelled


class Section(Enum):
    """A group of options, in their order: its number, its heading in help, and its part of the portal's form."""

    MODEL = 0, "The model", "Inputs"
    BUDGET = 1, "When to stop", "The run"
    OUTPUT = 2, "The result", "The run"
    PRECISION = 3, "The result", "Precision and runtime"
    CHECKS = 4, "The result", "Comparison of outputs"
    PLACEMENT = 5, "The result", "Precision and runtime"
    ACCEPTANCE = 6, "The result", "The run"
    LOGS = 7, "Output and logs", "The run"
    TARGET = 8, "Where it is measured", "The run"
    RECORDS = 9, "Records", "The run"
    REUSE = 10, "Records", "The run"
    MODELS = 11, "Several models", "The run"
    SEARCH = 12, "The search, for experts", "The run"
    SEED = 13, "The search, for experts", "The run"
    OTHER = 14, "Other options", "Precision and runtime"

    def __init__(self, number: int, heading: str, part: str) -> None:
        self.number, self.heading, self.part = number, heading, part


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """How an option is shown.

    The command line has `flag` (by default made of the name), the letter `short`, `metavar`, `off` (the help of a flag
    that switches off what is on by default) and `without` (what holds if the option is not given).  The REST API takes
    at most `most` characters or entries.  The portal has the `label`, a `hint`, the `step` of a number, `words` for
    choices, and the `part` of the form, where that is not the section's.  Jobs and reports tell a value that is not the
    default as `told` says, with the value for {}; "" leaves that to their own code.  `see` is the page of docs/ that
    has more.
    """

    section: Section = Section.OTHER
    flag: str = ""
    short: str = ""
    metavar: str | None = None
    off: str = ""
    without: str = ""
    most: int | None = None
    label: str = ""
    hint: str = ""
    step: float | None = None
    words: Mapping[str | int, str] = {}
    part: str = ""
    told: str | None = None
    see: str = ""


_NOT_SHOWN = Shown(told="")


def option(help: str, section: Section, **more: Any) -> msgspec.Meta:
    """Return the annotation of an option; `more` are limits (`gt`, `ge`, `le`) and fields of `Shown`."""
    limits = {limit: more.pop(limit, None) for limit in ("gt", "ge", "le")}
    return msgspec.Meta(description=help, **limits, extra={"shown": Shown(section=section, **more)})


def limited(struct: type[msgspec.Struct], name: str, *, gt: float, le: float) -> msgspec.Meta:
    """Return the annotation of a field of `struct` for another one, with these limits, and without `Shown.without`."""
    field = fields_of(struct)[name]
    shown = msgspec.structs.replace(field.shown, without="")
    return msgspec.Meta(description=field.help, gt=gt, le=le, extra={"shown": shown})


class OptionField(NamedTuple):
    """A field of a struct: `kind` is its type without None, `choices` are the values of a `Literal`."""

    name: str
    kind: type
    default: Any
    optional: bool
    meta: msgspec.Meta
    choices: tuple[str | int, ...] = ()

    @property
    def help(self) -> str:
        """Its help in one line."""
        return self.meta.description or ""

    @property
    def shown(self) -> Shown:
        """How it is shown."""
        shown: Shown = (self.meta.extra or {}).get("shown", _NOT_SHOWN)
        return shown

    @property
    def switches_off(self) -> bool:
        """Whether its flag on the command line switches off what is on by default."""
        return self.kind is bool and self.default is True

    @property
    def flag(self) -> str:
        """The option on the command line."""
        return self.shown.flag or f"--{'no-' * self.switches_off}{self.name.replace('_', '-')}"

    @property
    def label(self) -> str:
        """The name for people."""
        return self.shown.label or self.name.replace("_", " ").capitalize()


@cache
def fields_of(struct: type[msgspec.Struct]) -> dict[str, OptionField]:
    """Return the fields of `struct` by name, in the order of their declaration."""
    hints = get_type_hints(struct, include_extras=True)
    return {field.name: _field(field, hints[field.name]) for field in msgspec.structs.fields(struct)}


def _field(field: msgspec.structs.FieldInfo, hint: Any) -> OptionField:
    parts = list(_flat(hint))
    meta = next((part for part in parts if isinstance(part, msgspec.Meta)), msgspec.Meta())
    choices = tuple(part for part in parts if isinstance(part, str | int))
    kinds = [part for part in parts if not isinstance(part, msgspec.Meta | str | int) and part is not NoneType]
    default = None if field.default is msgspec.NODEFAULT else field.default
    if field.default_factory is not msgspec.NODEFAULT:
        default = field.default_factory()
    return OptionField(field.name, type(choices[0]) if choices else kinds[0], default, NoneType in parts, meta, choices)


def _flat(hint: Any) -> Iterator[Any]:
    """The types, `Meta`s and literal values that a hint is made of."""
    if get_origin(hint) is Annotated:
        inner, *extras = get_args(hint)
        yield from _flat(inner)
        yield from extras
    elif get_origin(hint) in (Union, UnionType):
        for part in get_args(hint):
            yield from _flat(part)
    elif get_origin(hint) is Literal:
        yield from get_args(hint)
    else:
        yield get_origin(hint) or hint


def described(struct: msgspec.Struct) -> list[str]:
    """Return a phrase for each option of `struct` whose value is not the default, as `Shown.told` says."""
    return [
        (field.shown.told or f"{field.label}: {{}}").format(value)
        for field in fields_of(type(struct)).values()
        if field.shown.told != "" and (value := getattr(struct, field.name)) != field.default
    ]


def check_fields(struct: msgspec.Struct) -> None:
    """Check that every value is of its field's type and within its limits.

    Raises:
        InputError: one is not; the line names the field, what it may be, and what it is.
    """
    for name, field in fields_of(type(struct)).items():
        value = getattr(struct, name)
        if value is None and field.optional:
            continue
        if field.choices:
            _check_choice(field, value)
        elif field.kind in (int, float):
            _check_number(field, value)
        elif field.kind in (bool, str) and not isinstance(value, field.kind):
            raise InputError(f"{name} must be {'true or false' if field.kind is bool else 'a text'}, and is {value!r}")


def _check_choice(field: OptionField, value: Any) -> None:
    if field.kind is str and value not in field.choices:
        raise InputError(f"unknown {field.name} {value!r}; use one of: {', '.join(map(str, field.choices))}")
    if field.kind is int and (type(value) is not int or value not in field.choices):
        raise InputError(f"{field.name} must be {' or '.join(map(str, field.choices))}, and is {value!r}")


def _check_number(field: OptionField, value: Any) -> None:
    name, meta = field.name, field.meta
    if isinstance(value, bool) or not isinstance(value, int if field.kind is int else (int, float)):
        raise InputError(f"{name} must be a {'whole ' if field.kind is int else ''}number, and is {value!r}")
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        raise InputError(f"{name} is out of range: it has {value.bit_length()} bits")
    shown = value if field.kind is int else f"{value:g}"
    finite = math.isfinite(value)
    most = "" if meta.le is None else f" and at most {meta.le:g}"
    over = meta.le is not None and value > meta.le
    if meta.gt is not None and not (finite and value > meta.gt and not over):
        raise InputError(f"{name} must be more than {meta.gt:g}{most}, and is {shown}")
    if meta.ge is not None and not (finite and value >= meta.ge and not over):
        raise InputError(f"{name} must be {meta.ge:g} or more{most}, and is {shown}")
    if field.kind is int and value >= 1 << 63:  # it does not fit into 64 bits
        raise InputError(f"{name} must be less than 2**63, and is {value}")
