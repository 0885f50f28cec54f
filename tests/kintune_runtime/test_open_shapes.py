"""Plans with open extents: they run any shape of their range, and change nothing but numbers that follow from it."""

from __future__ import annotations

import threading
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kintune_runtime
from kintune.core.execution_plan import Copy
from kintune.runtime.plan_format import decode_plan
from kintune_runtime import InputError
from kintune_runtime.inputs import takes
from kintune_runtime.library import checksum
from tests.support.toy_model import encoded, write_model
from tests.support.toy_open_model import GREATEST, TWICE, summing, times


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> kintune_runtime.Executable:
    return kintune_runtime.open(write_model(tmp_path_factory.mktemp("open") / "open.kt", [summing()], []))


def inputs(x: int, y: int | None = None, z: int | None = None) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(x)
    counts = {"x": x, "y": x if y is None else y, "z": 2 * x if z is None else z}
    return {name: rng.standard_normal(count, np.float32) for name, count in counts.items()}


@given(count=st.integers(2, 250))
def test_any_extent_of_the_range_runs(model: kintune_runtime.Executable, count: int) -> None:
    arrays = inputs(4 * count)
    np.testing.assert_array_equal(model.run(arrays)["sum"], arrays["x"] + arrays["y"])


def test_outputs_belong_to_the_caller_while_shapes_change(model: kintune_runtime.Executable) -> None:
    given_arrays = [inputs(count) for count in (8, 1000, 12, 8, 16, 1000)]
    found = [model.run(arrays)["sum"] for arrays in given_arrays]
    for arrays, total in zip(given_arrays, found, strict=True):
        np.testing.assert_array_equal(total, arrays["x"] + arrays["y"])


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        (inputs(4), r"input 'x' has 4 elements along axis 0 \(n\); 8 to 1000 in steps of 4 are possible"),
        (inputs(1004), "8 to 1000 in steps of 4 are possible"),
        (inputs(10), "8 to 1000 in steps of 4 are possible"),
        (inputs(12, y=16), "input 'y' has 16 elements along axis 0, 12 are needed"),
        (inputs(12, z=25), "input 'z' has 25 elements along axis 0, 24 are needed"),
        ({**inputs(12), "y": np.ones((12, 1), np.float32)}, "input 'y' has 2 dimensions, 1 are needed"),
        ({**inputs(12), "y": np.ones(12)}, "input 'y' is float64, float32 is needed"),
        ({"x": np.ones(12, np.float32)}, "input 'y', 'z' is missing"),
    ],
)
def test_another_shape_is_refused_in_one_line(
    model: kintune_runtime.Executable, arrays: dict[str, np.ndarray], said: str
) -> None:
    with pytest.raises(InputError, match=said) as raised:
        model.run(arrays)
    assert "\n" not in str(raised.value)
    arrays = inputs(8)
    np.testing.assert_array_equal(model.run(arrays)["sum"], arrays["x"] + arrays["y"])


def test_inputs_say_their_ranges(model: kintune_runtime.Executable) -> None:
    x, y, z = model.inputs
    assert (x.shape, x.ranges) == ((GREATEST,), ((8, GREATEST, 4),))
    assert y.ranges == ((8, GREATEST, 0),)
    assert z.ranges == ((16, 2 * GREATEST, 0),)
    assert [takes(x, (count,)) for count in (8, 10, 1000, 1004)] == [True, False, True, False]
    assert not takes(x, (8, 1))


def test_contexts_have_shapes_of_their_own(model: kintune_runtime.Executable) -> None:
    wrong = []

    def runs(count: int) -> None:
        with model.context() as context:
            for more in range(40):
                arrays = inputs(count + 4 * more)
                if not np.array_equal(context.run(arrays)["sum"], arrays["x"] + arrays["y"]):
                    wrong.append(count)

    threads = [threading.Thread(target=runs, args=(count,)) for count in (8, 12, 400)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong


def test_shapes_that_were_tuned_stand_beside_a_range(tmp_path: Path) -> None:
    """The first plan that takes the shapes runs."""
    fixed = msgspec.structs.replace(summing(greatest=12), open=None, operations=(Copy(0, 5),))
    model = kintune_runtime.open(write_model(tmp_path / "both.kt", [fixed, summing()], []))
    arrays = inputs(12)
    np.testing.assert_array_equal(model.run(arrays)["sum"], arrays["x"])
    arrays = inputs(16)
    np.testing.assert_array_equal(model.run(arrays)["sum"], arrays["x"] + arrays["y"])
    with pytest.raises(InputError, match=r"x=10, y=10, z=20 were not tuned; tuned are: x=12, .*; x=\{8\.\.1000\}, "):
        model.run(inputs(10))


def test_plans_are_read_as_they_were_written() -> None:
    plan = summing()
    assert decode_plan(encoded(plan, np.zeros(0, np.uint8)), checksum).plan == plan


@pytest.mark.parametrize(
    "change",
    [
        {"offsets": {4: times(4)}},  # no multiple of 64
        {"offsets": {4: times(1024)}},  # outside of the arena
        {"shapes": {3: (TWICE,)}},  # a copy of two sizes
        {"shapes": {1: (TWICE,)}},  # larger than for the greatest extents, for which there is room
        {"shapes": {0: (times(-1),)}},
        {"shapes": {0: (times(1 << 62),)}},
    ],
)
def test_formulas_lead_nowhere_outside(tmp_path: Path, change: dict[str, object]) -> None:
    """What a formula gives is verified as a plan is that was read: nothing runs."""
    plan = summing()
    assert plan.open is not None
    opened = msgspec.structs.replace(
        plan.open, **{name: {**getattr(plan.open, name), **parts} for name, parts in change.items()}
    )
    model = kintune_runtime.open(write_model(tmp_path / "wrong.kt", [msgspec.structs.replace(plan, open=opened)], []))
    with pytest.raises(InputError, match="damaged plan"):
        model.run(inputs(996))
