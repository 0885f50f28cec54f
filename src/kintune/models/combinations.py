"""Parses shapes as a user types them, and combines the alternatives in braces: `ids=1x{32,64}`.

Alternatives of all inputs are paired by position: `ids=1x{32,64}` and `mask=1x{32,64}` make two combinations.  An input
without alternatives has the same shape in all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from kintune.core.model import spell_shapes
from kintune.errors import ShapeError

__all__ = ["MOST_COMBINATIONS", "Alternatives", "combine_shapes", "parse_shape", "parse_shapes", "read_shapes"]

Alternatives: TypeAlias = tuple[tuple[int, ...], ...]
"""The shapes of one input: a single one, or one for each combination."""

MOST_COMBINATIONS = 16
"""The most combinations of shapes in one result; each is compiled, checked and timed as a network of its own."""

_DIMENSION = re.compile(r"0|[1-9][0-9]*")
_BRACE = re.compile(r"\{([^{}]*)\}")
_SCALAR = frozenset({"", "scalar"})
_LARGEST_DIMENSION = 2**31 - 1
_LONGEST = 200  # characters of the user's text that a message repeats


def parse_shape(text: str) -> tuple[str, Alternatives]:
    """Parse `input=1x3x224x224` into the input's name and its shape; that of a single number is `input=scalar`.

    A dimension may be alternatives in braces: `ids=1x{32,64}` has the shapes (1, 32) and (1, 64).

    Raises:
        ShapeError: when the text has another form, a dimension is too large, or two of its braces have different
            numbers of alternatives.
    """
    name, equals, shape = text.rpartition("=")
    if equals and name and shape in _SCALAR:
        return name, ((),)
    spelled = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
    dims = [_alternatives(dim) for dim in shape.split("x")]
    if any(brace == [""] for brace in dims) and "{}" in shape:
        raise ShapeError(f"--shape {spelled}: a brace is empty; write alternatives into it, for example {{32,64}}")
    if not (equals and name and all(_DIMENSION.fullmatch(one) for brace in dims for one in brace)):
        raise ShapeError(
            f"--shape {spelled}: write NAME=DIMxDIMx..., for example input=1x3x224x224; "
            "alternatives go in braces: 'ids=1x{32,64}'"
        )
    if any(int(one) > _LARGEST_DIMENSION if len(one) <= 10 else True for brace in dims for one in brace):
        raise ShapeError(f"--shape {spelled}: a dimension is at most {_LARGEST_DIMENSION}")
    counts = sorted({len(brace) for brace in dims if len(brace) > 1})
    if len(counts) > 1:
        raise ShapeError(
            f"--shape {spelled}: its braces have {' and '.join(map(str, counts))} alternatives; "
            "they go together, the first with the first: write equally many"
        )
    most = counts[0] if counts else 1
    return name, tuple(tuple(int(brace[at if len(brace) > 1 else 0]) for brace in dims) for at in range(most))


def parse_shapes(texts: Iterable[str]) -> dict[str, Alternatives]:
    """Parse several texts like `input=1x3x224x224` into the shapes of each input.

    Raises:
        ShapeError: when a text has another form, or two give an input different shapes.
    """
    bound: dict[str, Alternatives] = {}
    for text in texts:
        name, shapes = parse_shape(text)
        if bound.setdefault(name, shapes) != shapes:
            raise ShapeError(
                f"--shape {text}: {name} was already given as {_spell(bound[name])}; for a result that runs with both, "
                f"write the alternatives in braces and in quotes, as in '{name}=1x{{32,64}}'"
            )
    return bound


def read_shapes(given: Mapping[str, Any]) -> dict[str, Alternatives]:
    """Read the shapes that a program passes for each input: `(1, 32)`, or alternatives `[(1, 32), (1, 64)]`.

    Raises:
        ShapeError: when a value is neither.
    """
    return {name: _read(name, shape) for name, shape in given.items()}


def combine_shapes(shapes: Mapping[str, Alternatives]) -> tuple[dict[str, tuple[int, ...]], ...]:
    """Returns the combinations of shapes, at least one: number n has each input's alternative n, or its only shape.

    Raises:
        ShapeError: when inputs have different numbers of alternatives, a combination occurs twice, or there are more
            than `MOST_COMBINATIONS`.
    """
    counts = {name: len(alternatives) for name, alternatives in shapes.items() if len(alternatives) > 1}
    for name, count in counts.items():
        first = next(iter(counts))
        if count != counts[first]:
            raise ShapeError(
                f"{first} has {counts[first]} alternative shapes and {name} has {count}; "
                "they go together, the first with the first: name equally many"
            )
    most = max(counts.values(), default=1)
    if most > MOST_COMBINATIONS:
        raise ShapeError(f"{most} combinations of shapes are too many for one result; name at most {MOST_COMBINATIONS}")
    combinations = [
        {name: alternatives[at if len(alternatives) > 1 else 0] for name, alternatives in shapes.items()}
        for at in range(most)
    ]
    for at, combination in enumerate(combinations):
        if combination in combinations[:at]:
            raise ShapeError(f"the shapes {spell_shapes(combination)} are named twice; name each combination once")
    return tuple(combinations)


def _alternatives(dim: str) -> list[str]:
    brace = _BRACE.fullmatch(dim)
    return [dim] if brace is None else brace[1].split(",")


def _read(name: str, shape: Any) -> Alternatives:
    several = isinstance(shape, Sequence) and not isinstance(shape, str) and len(shape) > 0
    if several and all(isinstance(one, Sequence) and not isinstance(one, str) for one in shape):
        return tuple(_read_one(name, one) for one in shape)
    return (_read_one(name, shape),)


def _read_one(name: str, shape: Any) -> tuple[int, ...]:
    try:
        extents = tuple(int(extent) for extent in shape)
        whole = all(
            0 <= extent <= _LARGEST_DIMENSION and extent == one for extent, one in zip(extents, shape, strict=True)
        )
    except (TypeError, ValueError, OverflowError):
        whole = False
    if not whole:
        raise ShapeError(
            f"the shape of {str(name)[:_LONGEST]!r} must be whole numbers from 0 to {_LARGEST_DIMENSION}, or a list of "
            f"such shapes, not {str(shape)[:_LONGEST]}"
        )
    return extents


def _spell(alternatives: Alternatives) -> str:
    return " or ".join("x".join(map(str, shape)) or "scalar" for shape in alternatives)
