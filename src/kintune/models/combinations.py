"""Parses shapes as a user types them, and combines the alternatives in braces: `ids=1x{32,64}`.

Alternatives of all inputs are paired by position: `ids=1x{32,64}` and `mask=1x{32,64}` make two combinations.  An input
without alternatives has the same shape in all of them.  `{1..512}` is no alternative but a range of extents, and
`{8..512:8}` one in steps; a `range` of Python says the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from kintune.core.model import AnyShape, spell_extent, spell_shapes
from kintune.errors import ShapeError

__all__ = [
    "MOST_COMBINATIONS",
    "Alternatives",
    "combine_shapes",
    "parse_shape",
    "parse_shapes",
    "plain_shape",
    "read_shapes",
    "refuse_beside_ranges",
]

Alternatives: TypeAlias = tuple[AnyShape, ...]
"""The shapes of one input: a single one, or one for each combination."""

MOST_COMBINATIONS = 16
"""The most combinations of shapes in one result; each is compiled, checked and timed as a network of its own."""

_DIMENSION = re.compile(r"0|[1-9][0-9]*")
_BRACE = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"([0-9]{1,10})\.\.([0-9]{1,10})(?::([0-9]{1,10}))?")
_SCALAR = frozenset({"", "scalar"})
_LARGEST_DIMENSION = 2**31 - 1
_LONGEST = 200  # characters of the user's text that a message repeats


def parse_shape(text: str) -> tuple[str, Alternatives]:
    """Parse `input=1x3x224x224` into the input's name and its shape; that of a single number is `input=scalar`.

    A dimension may be alternatives in braces: `ids=1x{32,64}` has the shapes (1, 32) and (1, 64); or a range.

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
    if wrong := next((one for brace in dims for one in brace if ".." in one and not _is_range(one)), None):
        raise ShapeError(
            f"--shape {spelled}: {{{wrong}}} is no range; write the least and the greatest extent, from 1 on, as in "
            "'ids=1x{1..512}', and a step if there is one: '{8..512:8}'"
        )
    if not (equals and name and all(_DIMENSION.fullmatch(one) or _is_range(one) for brace in dims for one in brace)):
        raise ShapeError(
            f"--shape {spelled}: write NAME=DIMxDIMx..., for example input=1x3x224x224; "
            "alternatives and ranges go in braces: 'ids=1x{32,64}', 'ids=1x{1..512}'"
        )
    if any(_greatest(one) > _LARGEST_DIMENSION for brace in dims for one in brace):
        raise ShapeError(f"--shape {spelled}: a dimension is at most {_LARGEST_DIMENSION}")
    counts = sorted({len(brace) for brace in dims if len(brace) > 1})
    if len(counts) > 1:
        raise ShapeError(
            f"--shape {spelled}: its braces have {' and '.join(map(str, counts))} alternatives; "
            "they go together, the first with the first: write equally many"
        )
    most = counts[0] if counts else 1
    return name, tuple(tuple(_extent(brace[at if len(brace) > 1 else 0]) for brace in dims) for at in range(most))


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

    A range is a `range` of Python, or a text such as "1..512".

    Raises:
        ShapeError: when a value is neither.
    """
    return {name: _read(name, shape) for name, shape in given.items()}


def combine_shapes(shapes: Mapping[str, Alternatives]) -> tuple[dict[str, AnyShape], ...]:
    """Returns the combinations of shapes, at least one: number n has each input's alternative n, or its only shape.

    Raises:
        ShapeError: when inputs have different numbers of alternatives, a combination occurs twice, there are more
            than `MOST_COMBINATIONS`, or ranges among several.
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
    if most > 1 and any(isinstance(extent, range) for each in shapes.values() for one in each for extent in one):
        raise ShapeError("alternatives such as {32,64} and ranges such as {1..512} do not go together; use one of both")
    combinations: list[dict[str, AnyShape]] = [
        {name: alternatives[at if len(alternatives) > 1 else 0] for name, alternatives in shapes.items()}
        for at in range(most)
    ]
    for at, combination in enumerate(combinations):
        if combination in combinations[:at]:
            raise ShapeError(f"the shapes {spell_shapes(combination)} are named twice; name each combination once")
    return tuple(combinations)


def plain_shape(alternatives: Alternatives) -> tuple[int | str | tuple[int | str, ...], ...]:
    """The only shape, or the alternatives, of numbers and texts: ranges as `read_shapes` reads them."""
    shapes = tuple(tuple(e if isinstance(e, int) else spell_extent(e) for e in shape) for shape in alternatives)
    return shapes if len(shapes) > 1 else shapes[0]


def refuse_beside_ranges(*, quantises: bool, other_shapes: str) -> None:
    """Refuse what a result for ranges of shapes cannot have.

    Raises:
        ShapeError: the model is to be quantised, or other shapes are to run in onnxruntime.
    """
    if quantises:
        raise ShapeError("a model is quantised for fixed shapes; name some in place of ranges")
    if other_shapes == "onnxruntime":
        raise ShapeError("other shapes run in onnxruntime beside tuned shapes, and not beside ranges; leave one out")


def _is_range(text: str) -> bool:
    """Whether this reads as a range of one or more extents that are not zero."""
    return (found := _RANGE.fullmatch(text)) is not None and 0 < int(found[1]) <= int(found[2]) and found[3] != "0"


def _greatest(text: str) -> int:
    """The greatest extent of a dimension, or of a range."""
    digits = text.partition("..")[2].partition(":")[0] or text
    return int(digits) if len(digits) <= 10 else _LARGEST_DIMENSION + 1


def _extent(text: str) -> int | range:
    """A dimension or a range; one of a single extent is this extent."""
    if (found := _RANGE.fullmatch(text)) is None:
        return int(text)
    return _narrowed(range(int(found[1]), int(found[2]) + 1, int(found[3] or 1)))


def _narrowed(extents: range) -> int | range:
    return extents if len(extents) > 1 else extents[0]


def _alternatives(dim: str) -> list[str]:
    brace = _BRACE.fullmatch(dim)
    return [dim] if brace is None else brace[1].split(",")


def _read(name: str, shape: Any) -> Alternatives:
    if _is_sequence(shape) and len(shape) > 0 and all(map(_is_sequence, shape)):
        return tuple(_read_one(name, one) for one in shape)
    return (_read_one(name, shape),)


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | range)


def _read_one(name: str, shape: Any) -> AnyShape:
    try:
        return tuple(map(_read_extent, shape))
    except (TypeError, ValueError, OverflowError):
        raise ShapeError(
            f"the shape of {str(name)[:_LONGEST]!r} must be whole numbers from 0 to {_LARGEST_DIMENSION} or ranges, or "
            f"a list of such shapes, not {str(shape)[:_LONGEST]}"
        ) from None


def _read_extent(given: Any) -> int | range:
    """An extent as a number, or a range as Python or text has it; others raise what is caught where this is called."""
    if isinstance(given, str) and _is_range(given.strip("{}")):
        given = _extent(given.strip("{}"))
    if isinstance(given, range):
        if not given or given.start < 1 or given.step < 1 or given[-1] > _LARGEST_DIMENSION:
            raise ValueError(given)
        return _narrowed(given)
    extent = int(given)
    if isinstance(given, str) or extent != given or not 0 <= extent <= _LARGEST_DIMENSION:
        raise ValueError(given)
    return extent


def _spell(alternatives: Alternatives) -> str:
    return " or ".join(spell_shapes({"": shape}).removeprefix("=") for shape in alternatives)
