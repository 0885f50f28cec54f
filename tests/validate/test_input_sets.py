"""The sets of inputs of a validation."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from kintune.core.model import Tensor
from kintune.core.stage_requests import ValidationItem
from kintune.runtime.extreme_inputs import extreme_inputs
from kintune.runtime.inputs import draw_inputs, load_inputs, write_arrays
from kintune.validate.input_sets import InputSets

X = Tensor("x", (64,), "float32")
BRANCH = Tensor("branch", (), "int64", values="choices", choices=(3, 7, 9))


def test_a_single_drawn_set_needs_no_file(tmp_path: Path) -> None:
    sets = InputSets(ValidationItem("tuned.kt"), [X], tmp_path)
    assert (len(sets), sets.first, sets.file_of_several(0), sets.chosen(0)) == (1, None, None, "")
    assert not list(tmp_path.iterdir())


def test_sets_of_the_user_are_taken_as_they_are(tmp_path: Path) -> None:
    sets = InputSets(ValidationItem("tuned.kt", inputs=("a.npz", "b.npz"), draws=3), [BRANCH], tmp_path)
    assert (len(sets), sets.first, sets.file_of_several(1), sets.chosen(1)) == (2, "a.npz", "b.npz", "")
    alone = InputSets(ValidationItem("tuned.kt", inputs=("a.npz",)), [X], tmp_path)
    assert (alone.first, alone.file_of_several(0)) == ("a.npz", None)


def test_several_draws_differ(tmp_path: Path) -> None:
    sets = InputSets(ValidationItem("tuned.kt", draws=3), [X], tmp_path)
    assert len({load_inputs(str(sets.file_of_several(at)))["x"].tobytes() for at in range(len(sets))}) == 3


def test_each_value_that_decides_what_is_computed_has_a_set(tmp_path: Path) -> None:
    sets = InputSets(ValidationItem("tuned.kt"), [X, BRANCH], tmp_path)
    assert [sets.chosen(at) for at in range(len(sets))] == ["branch=3", "branch=7", "branch=9"]


@pytest.mark.parametrize("values", ["positive", "small"])
def test_one_more_set_has_other_values(tmp_path: Path, values: str) -> None:
    sets = InputSets(ValidationItem("tuned.kt"), [X], tmp_path)
    assert sets.redraw(values) == 1
    assert (len(sets), sets.first) == (2, None)
    drawn = load_inputs(str(sets.file_of_several(1)))["x"]
    assert (drawn > 0).all() if values == "positive" else np.abs(drawn).max() < 1


def test_two_draws_are_two_sets(tmp_path: Path) -> None:
    assert len(InputSets(ValidationItem("tuned.kt", draws=2), [X], tmp_path)) == 2
    assert len(InputSets(ValidationItem("tuned.kt", draws=1), [X], tmp_path)) == 1


def test_one_more_set_leaves_those_that_there_are(tmp_path: Path) -> None:
    """Also what is not drawn as floats, and what is drawn in a way of its own."""
    own = Tensor("own", (64,), "float32", values="image")
    sets = InputSets(ValidationItem("tuned.kt", draws=3), [X, own, Tensor("n", (64,), "int64")], tmp_path)
    before = [sets.file_of_several(at) for at in range(3)]
    assert sets.redraw("positive") == 3
    assert [sets.file_of_several(at) for at in range(3)] == before
    alone = InputSets(ValidationItem("tuned.kt"), [own, Tensor("n", (64,), "int64"), X], tmp_path)
    alone.redraw("small")
    first, again = (load_inputs(str(alone.file_of_several(at))) for at in range(2))
    assert [name for name in first if not np.array_equal(first[name], again[name])] == ["x"]


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("draws", [1, 2])
def test_extremes_are_further_sets(tmp_path: Path, given: bool, keeps: bool, draws: int) -> None:
    """Of what the user gave, where he gave any; integers stay as they are then."""
    tensors = [X, Tensor("n", (64,), "int64")]
    write_arrays(tmp_path / "mine.npz", {"x": np.full(64, 0.25, np.float32), "n": np.full(64, 3)})
    mine = (str(tmp_path / "mine.npz"),) if given else ()
    sets = InputSets(ValidationItem("tuned.kt", inputs=mine, seed=4, draws=draws), tensors, tmp_path)
    first = len(sets)
    numbered = sets.add_extremes(keeps)
    assert (len(sets), sets.extremes) == (first, set(range(first, first + len(numbered))))
    assert sets.extremes == set(numbered)
    taken = load_inputs(mine[0]) if given else None
    wanted = extreme_inputs(tensors, 4, given=taken, keep_integers=keeps or given)
    assert [each.name for each in numbered.values()] == [each.name for each in wanted]
    for (at, each), expected in zip(numbered.items(), wanted, strict=True):
        kept = load_inputs(str(sets.file_of_several(at)))
        for name, array in expected.arrays.items():
            np.testing.assert_array_equal(kept[name], array)
            np.testing.assert_array_equal(each.arrays[name], array)


def test_what_decides_may_have_axes(tmp_path: Path) -> None:
    wide = Tensor("branch", (1, 2), "int64", values="choices", choices=(3, 7))
    sets = InputSets(ValidationItem("tuned.kt"), [X, wide], tmp_path)
    assert [sets.chosen(at) for at in range(len(sets))] == ["branch=3", "branch=7"]


def test_sets_of_other_shapes_come_before_extremes(tmp_path: Path) -> None:
    """Each is drawn by itself, and named by those of its inputs whose shapes are open."""
    tensors = [
        Tensor("ids", (1, 64), "int64", values="ids", below=50, ranges=((1, 1, 0), (1, 64, 1))),
        Tensor("x", (4,), "float32"),
    ]
    shapes = [{"ids": (1, 7), "x": (4,)}, {"ids": (1, 33), "x": (4,)}]
    sets = InputSets(ValidationItem("tuned.kt", seed=4), tensors, tmp_path, shapes)
    numbered = sets.add_extremes(keep_integers=False)
    first = min(numbered)
    assert sets.shaped == {first, first + 1} < sets.extremes == set(numbered)
    for at, shape in enumerate(shapes):
        found = numbered[first + at]
        assert found.name == f"inputs of shape ids=1x{shape['ids'][1]}"
        drawn = draw_inputs(
            [msgspec.structs.replace(each, shape=shape[each.name], ranges=()) for each in tensors], 5 + at
        )
        for name, array in drawn.items():
            np.testing.assert_array_equal(found.arrays[name], array)
    assert not InputSets(ValidationItem("tuned.kt"), tensors, tmp_path).shaped
