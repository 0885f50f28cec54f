"""`kt_find_plan`, as a program in C calls it."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

import pytest

import kintune_runtime
from kintune.core.model import Tensor
from kintune_runtime.library import Shape, library
from tests.support.toy_model import calling, write_model


def find(model: kintune_runtime.Executable, *shapes: Sequence[int]) -> tuple[int, int, str]:
    """The status, the plan, and the text of the last failure."""
    found = library().kt_find_plan
    found.restype, found.argtypes = ctypes.c_int, None
    given = (Shape * max(1, len(shapes)))()
    kept = [(ctypes.c_int64 * max(1, len(shape)))(*shape) for shape in shapes]
    for to, extents, shape in zip(given, kept, shapes, strict=False):
        to.extents, to.rank = extents, len(shape)
    plan = ctypes.c_int32(-5)
    status = found(model._handle(), given, ctypes.c_int32(len(shapes)), ctypes.byref(plan))
    return status, plan.value, library().kt_last_error().decode()


def shaped(folder: Path, *shapes: tuple[tuple[int, ...], ...]) -> kintune_runtime.Executable:
    """A model with a plan for each; its inputs are called `a`, `b` and so on."""
    plans = [
        calling("indices", [Tensor(n, s, "float32") for n, s in zip("abcd", each, strict=False)], [ONE])
        for each in shapes
    ]
    return kintune_runtime.open(write_model(folder / "shaped.kt", plans, []))


ONE = Tensor("out", (2,), "int64")
LENGTHS = (((1, 16), ()), ((1, 32), ()), ((2, 16), ()))


def test_it_finds_the_plan_of_each_combination(tmp_path: Path) -> None:
    model = shaped(tmp_path, *LENGTHS)
    assert [find(model, *shapes)[:2] for shapes in LENGTHS] == [(0, 0), (0, 1), (0, 2)]


@pytest.mark.parametrize(
    ("shapes", "said"),
    [
        (((1, 48), ()), "the shapes a=1x48 were not tuned; tuned are: a=1x16; a=1x32; a=2x16"),
        (((1, 16), (3,)), "the shapes a=1x16, b=3 were not tuned; tuned are: a=1x16, b=scalar; a=1x32, b=scalar"),
        (((16,), ()), "the shapes a=16 were not tuned"),
        (((1,) * 40, ()), "the shapes a=1x1x1x1x1x1x1x1x... were not tuned"),
        (((1, 16),), "kt_find_plan: 1 shapes given, 2 needed"),
        ((), "kt_find_plan: 0 shapes given, 2 needed"),
    ],
)
def test_what_was_not_tuned_is_refused_by_name(tmp_path: Path, shapes: tuple[tuple[int, ...], ...], said: str) -> None:
    status, _, text = find(shaped(tmp_path, *LENGTHS), *shapes)
    assert status == 1
    assert text.startswith(said)
    assert len(text) < 512


def test_many_plans_are_named_as_far_as_there_is_room(tmp_path: Path) -> None:
    model = shaped(tmp_path, *(((1234567, number), ()) for number in range(100_000, 100_100)))
    status, _, text = find(model, (1, 2), ())
    assert status == 1
    assert text.startswith("the shapes a=1x2 were not tuned; tuned are: a=1234567x100000; a=1234567x100001; ")


def test_a_model_without_inputs_has_its_plan(tmp_path: Path) -> None:
    assert find(kintune_runtime.open(write_model(tmp_path / "none.kt", [calling("indices", [], [ONE])], [])))[:2] == (
        0,
        0,
    )
