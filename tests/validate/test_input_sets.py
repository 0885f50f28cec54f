"""The sets of inputs of a validation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kintune.core.model import Tensor
from kintune.core.stage_requests import ValidationItem
from kintune.runtime.inputs import load_inputs
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
