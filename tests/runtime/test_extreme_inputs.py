"""Sets of extreme inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.core.model import Tensor
from kintune.runtime.extreme_inputs import ExtremeInputs, extreme_inputs
from kintune.runtime.inputs import arrange_inputs, draw_inputs

FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("int8", "uint8", "int16", "int32", "int64", "uint32", "uint64")
SHAPES = st.lists(st.integers(0, 4), max_size=3).map(tuple)


@st.composite
def tensors(draw: Any, name: str = "x") -> Tensor:
    """An input of any type and role."""
    dtype = draw(st.sampled_from((*FLOATS, *INTEGERS, "bool", "string")))
    if dtype in INTEGERS and draw(st.booleans()):
        size = draw(st.integers(1, 100))
        bounds = draw(st.sampled_from((None, (0, size - 1), (0 if "uint" in dtype else -size, size - 1))))
        return Tensor(name, draw(SHAPES), dtype, bounds=bounds, values="ids", below=size)
    roles = {
        "string": ("",),
        "bool": ("", "mask"),
        **dict.fromkeys(FLOATS, ("", "image", "positive", "mask", "choices")),
        **dict.fromkeys(INTEGERS, ("", "counts", "lengths", "sizes", "mask", "choices")),
        **dict.fromkeys(("int8", "uint8"), ("bytes", "mask")),
    }
    role = draw(st.sampled_from(roles[dtype]))
    return Tensor(name, draw(SHAPES), dtype, values=role, choices=(3, 7) if role == "choices" else ())


def sets_of(*inputs: Tensor, **options: Any) -> dict[str, ExtremeInputs]:
    return {each.name: each for each in extreme_inputs(inputs, **options)}


@given(st.integers(0, 3).flatmap(lambda count: st.tuples(*(tensors(f"x{each}") for each in range(count)))))
def test_every_set_is_one_that_the_model_takes(inputs: tuple[Tensor, ...]) -> None:
    found = extreme_inputs(inputs, seed=1)
    for each in found:
        arrange_inputs(inputs, [each.arrays])  # types, shapes and the bounds of indices
        for tensor in inputs:
            if tensor.values == "ids" and each.arrays[tensor.name].size:
                assert each.arrays[tensor.name].max() < tensor.below
    contents = [tuple(array.tobytes() for array in each.arrays.values()) for each in found]
    assert len(set(contents)) == len(contents) <= 8


@given(tensors())
def test_what_decides_is_kept(tensor: Tensor) -> None:
    drawn = draw_inputs([tensor], 1)["x"]
    kept = tensor.values in ("choices", "lengths", "sizes") or tensor.dtype == "string"
    integer = tensor.dtype in INTEGERS and tensor.values not in ("ids", "mask", "bytes") and tensor.bounds is None
    for each in extreme_inputs([tensor], 1, keep_integers=True):
        assert not kept
        assert not integer
        assert each.arrays["x"].tobytes() != drawn.tobytes()


@pytest.mark.parametrize("dtype", FLOATS)
def test_floats_have_every_extreme_in_one_element(dtype: str) -> None:
    found = sets_of(Tensor("x", (2, 9), dtype))
    x = {name: each.arrays["x"].astype(np.float64) for name, each in found.items()}
    assert not x["inputs that are all zeros"].any()
    assert (x["inputs that are all equal"] == 1).all()
    assert np.isnan(x["inputs with one NaN"]).sum() == 1
    assert np.isposinf(x["inputs with one infinity"]).sum() == 1
    largest = x["inputs with one largest number"]
    assert np.isfinite(largest).all()
    assert (largest == np.sort(largest.ravel())[-1]).sum() == 1
    assert x["inputs with a single 1"].sum() == (x["inputs with a single 1"] != 0).sum() == 1
    denormal = np.abs(x["denormal inputs"])
    assert ((denormal > 0) & (denormal < 1e-4)).all()
    assert np.abs(x["large inputs"]).max() > 1e3
    assert [name for name, each in found.items() if not each.is_ordinary] == [
        "inputs with one NaN",
        "inputs with one infinity",
        *(["inputs with one largest number"] if dtype != "float16" else []),
    ]
    assert [name for name, each in found.items() if each.is_borderline] == [
        *(["large inputs"] if dtype == "float16" else []),
        "denormal inputs",
        "inputs with one largest number",
    ]


def test_indices_are_the_first_the_last_and_repeated() -> None:
    found = sets_of(Tensor("ids", (1, 8), "int64", bounds=(-50, 49), values="ids", below=50))
    ids = {name: set(each.arrays["ids"].ravel().tolist()) for name, each in found.items()}
    assert ids["inputs that are all zeros"] == {0}
    assert ids["inputs that are all equal"] == {49}
    assert ids["large inputs"] == {-50, 49}
    assert len(ids["inputs with a single 1"]) == 1
    assert len(ids) == 4


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_indices_that_come_as_floats_stay_in_their_table(dtype: str) -> None:
    for each in sets_of(Tensor("ids", (1, 8), dtype, values="ids", below=50)).values():
        assert ((each.arrays["ids"] >= 0) & (each.arrays["ids"] < 50)).all()


def test_masks_hide_all_nothing_and_all_but_one() -> None:
    found = sets_of(Tensor("mask", (1, 8), "int64", values="mask"))
    assert [int(each.arrays["mask"].sum()) for each in found.values()] == [0, 8, 1]


def test_bytes_and_integers_have_the_ends_of_their_type() -> None:
    found = sets_of(Tensor("image", (4,), "uint8", values="bytes"), Tensor("n", (2,), "int64", values="counts"))
    large = found["large inputs"].arrays
    assert large["image"].tolist() == [0, 255, 0, 255]
    assert large["n"].tolist() == [-(2**63), 2**63 - 1]
    assert not found["large inputs"].is_ordinary
    assert (found["inputs that are all equal"].arrays["image"] == 255).all()


def test_boxes_are_empty_and_full() -> None:
    found = sets_of(Tensor("boxes", (2, 4), "float32"))
    assert not found["inputs that are all zeros"].arrays["boxes"].any()
    assert found["inputs that are all equal"].arrays["boxes"].tolist() == [[0, 0, 1, 1]] * 2


def test_given_inputs_take_the_place_of_drawn_ones() -> None:
    inputs = [Tensor("x", (3,), "float32"), Tensor("n", (), "int64")]
    values = {"x": np.array([2, 4, 8], np.float32), "n": np.array(5)}
    for each in extreme_inputs(inputs, given=values, keep_integers=True):
        assert each.arrays["n"] == 5
    found = {each.name: each.arrays["x"].tolist() for each in extreme_inputs(inputs, given=values, keep_integers=True)}
    assert found["large inputs"] == [2e4, 4e4, 8e4]
    assert found["inputs with one infinity"] == [2, np.inf, 8]
