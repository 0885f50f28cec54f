from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.core.model import ModelRef, spell_extent, spell_shapes


def test_other_files_are_read_of_the_users_models_and_of_the_zoos() -> None:
    assert ModelRef("onnx", "a.onnx", "a", own=True).reads_other_files
    assert ModelRef("zoo", "gpt2", "gpt2").reads_other_files
    assert not ModelRef("onnx", "a.onnx", "a").reads_other_files


_SHAPES = st.dictionaries(st.sampled_from("abc"), st.lists(st.integers(1, 9), max_size=3).map(tuple), max_size=2)


@given(st.lists(_SHAPES, min_size=1, max_size=4))
def test_a_model_has_the_combinations_of_shapes_that_it_was_given(shapes: list[dict[str, tuple[int, ...]]]) -> None:
    model = ModelRef("onnx", "a.onnx", "a").with_combinations(shapes)
    assert model.combinations == tuple(shapes)
    assert [each.combinations for each in model.each()] == [(one,) for one in shapes]


def test_shapes_are_spelled_as_the_command_line_takes_them() -> None:
    assert spell_shapes({"ids": (1, 32), "scale": (), "n": (4,)}) == "ids=1x32, scale=scalar, n=4"


def test_a_single_combination_has_ranges_and_its_shapes_are_the_greatest() -> None:
    shapes = {"ids": (1, range(8, 65, 8)), "mask": (range(1, 4), 7), "scale": ()}
    model = ModelRef("onnx", "a.onnx", "a").with_combinations([shapes])
    assert model.shapes == {"ids": (1, 64), "mask": (3, 7), "scale": ()}
    assert model.ranges == {"ids": ((1, 8, 8),), "mask": ((0, 1, 1),)}
    assert model.any_shapes == shapes
    assert model.more_shapes == ()


@pytest.mark.parametrize(
    ("extent", "text"),
    [(7, "7"), (range(1, 513), "{1..512}"), (range(2, 9, 2), "{2..8:2}"), (range(3, 12, 4), "{3..11:4}")],
)
def test_an_extent_is_spelled_as_the_command_line_takes_it(extent: int | range, text: str) -> None:
    assert spell_extent(extent) == text
