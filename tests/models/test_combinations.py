"""Shapes as people and programs write them, and the combinations that they make."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.core.model import ModelRef, spell_shapes
from kintune.errors import ShapeError
from kintune.models.combinations import (
    MOST_COMBINATIONS,
    combine_shapes,
    parse_shape,
    parse_shapes,
    plain_shape,
    read_shapes,
)


@given(st.text(min_size=1), st.lists(st.integers(1, 2**31 - 1), min_size=1, max_size=6))
def test_a_shape_is_read_as_it_was_written(name: str, shape: list[int]) -> None:
    assert parse_shape(f"{name}={'x'.join(map(str, shape))}") == (name, (tuple(shape),))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "=",
        "x",
        "=1x2",
        "x=1x",
        "x=x1",
        "x=-1x3",
        "x=1X3",
        "x=1,3",
        "x=1 x3",
        "x=1.5",
        "x=٣",
        "x=2147483648",
        "x={}",
        "x=1x{}",
        "x=1x{2,}",
        "x=1x{2,3",
        "x=1x2,3}",
        "x={{2,3}}",
        "x={1,2}3",
        "x={1,2}x{3,4,5}",
        "x={1, 2}",
        "x={1x2,3x4}",
        "x={1,2147483648}",
    ],
)
def test_what_is_no_shape_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(ShapeError) as caught:
        parse_shape(text)
    assert f"--shape {text}:" in str(caught.value)


@given(st.text("ab=x{}12,", max_size=30) | st.text(max_size=30))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    with suppress(ShapeError):
        name, shapes = parse_shape(text)
        assert name
        assert len({len(shape) for shape in shapes}) == 1


@pytest.mark.parametrize(
    ("text", "shape"), [("x=2x0", (2, 0)), ("x=0", (0,)), ("x=scalar", ()), ("x=", ()), ("a=b=3", (3,))]
)
def test_sizes_may_be_nothing_and_shapes_a_scalar(text: str, shape: tuple[int, ...]) -> None:
    assert parse_shape(text)[1] == (shape,)


_COLUMNS = st.integers(2, MOST_COMBINATIONS).flatmap(
    lambda count: st.lists(
        st.one_of(
            st.integers(0, 99).map(lambda extent: [extent]),
            st.lists(st.integers(0, 99), min_size=count, max_size=count),
        ),
        min_size=1,
        max_size=5,
    )
)


@given(_COLUMNS)
def test_alternatives_go_together_the_first_with_the_first(columns: list[list[int]]) -> None:
    text = "x".join(str(c[0]) if len(c) == 1 else "{" + ",".join(map(str, c)) + "}" for c in columns)
    count = max(map(len, columns))
    wanted = tuple(tuple(column[at if len(column) > 1 else 0] for column in columns) for at in range(count))
    assert parse_shape(f"input={text}") == ("input", wanted)


@given(st.lists(st.lists(st.integers(0, 9), min_size=2, max_size=2), min_size=1, max_size=8, unique_by=tuple))
def test_the_law_of_combinations(rows: list[list[int]]) -> None:
    """Each combination has every input once, with the alternative of its place or with the only one."""
    shapes = {"a": tuple((one,) for one, _ in rows), "b": tuple((two, 1) for _, two in rows), "c": ((7,),)}
    combinations = combine_shapes(shapes)
    assert len(combinations) == len(rows)
    for at, combination in enumerate(combinations):
        assert combination == {name: of[at if len(of) > 1 else 0] for name, of in shapes.items()}


def test_without_alternatives_there_is_one_combination() -> None:
    assert combine_shapes({}) == ({},)
    assert combine_shapes(parse_shapes(["x=1x3", "y=scalar", "z=1x{5}"])) == ({"x": (1, 3), "y": (), "z": (1, 5)},)


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["ids=1x{}"], "a brace is empty"),
        (["ids={1,2}x{3,4,5}"], "its braces have 2 and 3 alternatives"),
        (["ids=1x{1,2}", "mask=1x{1,2,3}"], "ids has 2 alternative shapes and mask has 3"),
        (["ids=1x{4,4}"], "the shapes ids=1x4 are named twice"),
        (["ids=1x{4,5,4}", "mask=3"], "the shapes ids=1x4, mask=3 are named twice"),
        (["ids=1x{" + ",".join(map(str, range(17))) + "}"], "17 combinations of shapes are too many"),
        (["ids=1x4", "ids=1x5"], "ids was already given as 1x4; .* in quotes"),
        (["ids=1x{4,5}", "ids=1x{4,6}"], "ids was already given as 1x4 or 1x5"),
    ],
)
def test_what_does_not_go_together_is_refused_in_one_line(texts: list[str], said: str) -> None:
    with pytest.raises(ShapeError, match=said) as caught:
        combine_shapes(parse_shapes(texts))
    assert "\n" not in str(caught.value)


def test_a_long_text_is_not_repeated_as_a_whole() -> None:
    with pytest.raises(ShapeError) as caught:
        parse_shape(f"x={'9' * 100_000}")
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("shape", "read"),
    [
        ((1, 3), ((1, 3),)),
        ([1, 3], ((1, 3),)),
        ((), ((),)),
        ([(1, 32), (1, 64)], ((1, 32), (1, 64))),
        (([1], [2]), ((1,), (2,))),
        ([()], ((),)),
    ],
)
def test_programs_name_a_shape_or_a_list_of_them(shape: Any, read: Any) -> None:
    assert read_shapes({"x": shape}) == {"x": read}


@pytest.mark.parametrize("shape", ["1x3", 3, (1, -3), (1, 2.5), [(1, 2), 3], [[[1]]], (2**31,), None, (1, "3x")])
def test_what_is_neither_is_refused_by_name(shape: Any) -> None:
    with pytest.raises(ShapeError, match="the shape of 'ids' must be whole numbers"):
        read_shapes({"ids": shape})


_RANGES = st.tuples(st.integers(1, 600), st.integers(0, 600), st.integers(1, 9)).map(
    lambda given: range(given[0], given[0] + given[1] + 1, given[2])
)


@given(_RANGES, st.integers(0, 9))
def test_a_range_of_extents_is_read_as_it_was_written(extents: range, other: int) -> None:
    written = f"{extents.start}..{extents.stop - 1}:{extents.step}"
    kept: int | range = extents if len(extents) > 1 else extents[0]
    for text in (written, f"{{{written}}}"):
        (name, (shape,)) = parse_shape(f"ids={other}x{text}")
        assert (name, shape) == ("ids", (other, kept))
    for shape in ((other, extents), (other, written), (other, f"{{{written}}}")):
        assert read_shapes({"ids": shape}) == {"ids": ((other, kept),)}
    plain = plain_shape(((other, kept),))
    assert read_shapes({"ids": plain}) == {"ids": ((other, kept),)}
    (bound,) = combine_shapes({"ids": ((other, kept),)})
    assert parse_shapes([spell_shapes(bound)]) == {"ids": ((other, kept),)}
    ref = ModelRef("onnx", "model.onnx", "model").with_combinations([bound])
    assert ref.shapes == {"ids": (other, extents[-1])}
    assert ref.ranges == ({"ids": ((1, extents.start, extents.step),)} if len(extents) > 1 else {})


@pytest.mark.parametrize("range_", ["0..5", "5..1", "1..", "..", "1..5:0", "1..99999999999", "-1..5", "1...5"])
def test_what_is_no_range_is_refused(range_: str) -> None:
    with pytest.raises(ShapeError) as error:
        parse_shape(f"ids=1x{{{range_}}}")
    assert "\n" not in str(error.value)
    with pytest.raises(ShapeError):
        read_shapes({"ids": (1, range_)})


def test_a_range_may_not_be_too_large_or_stand_among_alternatives() -> None:
    with pytest.raises(ShapeError, match="a dimension is at most 2147483647"):
        parse_shape("ids={1..4000000000}")
    for wrong in (range(5, 1), range(4), range(9, 1, -1), range(1, 2**32)):
        with pytest.raises(ShapeError, match="whole numbers from 0"):
            read_shapes({"ids": (1, wrong)})
    for texts in (["ids={1..5}", "mask={1,2}"], ["ids={1..5,7}"]):
        with pytest.raises(ShapeError, match="do not go together"):
            combine_shapes(parse_shapes(texts))
