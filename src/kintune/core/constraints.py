"""Options declared once: name, type, limits and help of each field of a struct, and values checked against them.

A field is annotated with `msgspec.Meta`: `ge`, `gt` and `le` limit a number, `description` is its help in one line.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec

from kintune.errors import InputError

__all__ = ["Field", "check_fields", "fields_of"]

_MOST_BITS = 1000  # of an integer: a float holds it, and it can be spelled


class Field(NamedTuple):
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


@cache
def fields_of(struct: type[msgspec.Struct]) -> dict[str, Field]:
    """Return the fields of `struct` by name, in the order of their declaration."""
    hints = get_type_hints(struct, include_extras=True)
    return {field.name: _field(field, hints[field.name]) for field in msgspec.structs.fields(struct)}


def _field(field: msgspec.structs.FieldInfo, hint: Any) -> Field:
    parts = list(_flat(hint))
    meta = next((part for part in parts if isinstance(part, msgspec.Meta)), msgspec.Meta())
    choices = tuple(part for part in parts if isinstance(part, str | int))
    kinds = [part for part in parts if not isinstance(part, msgspec.Meta | str | int) and part is not NoneType]
    default = field.default if field.default is not msgspec.NODEFAULT else None
    return Field(field.name, type(choices[0]) if choices else kinds[0], default, NoneType in parts, meta, choices)


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


def _check_choice(field: Field, value: Any) -> None:
    if field.kind is str and value not in field.choices:
        raise InputError(f"unknown {field.name} {value!r}; use one of: {', '.join(map(str, field.choices))}")
    if field.kind is int and (type(value) is not int or value not in field.choices):
        raise InputError(f"{field.name} must be {' or '.join(map(str, field.choices))}, and is {value!r}")


def _check_number(field: Field, value: Any) -> None:
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
