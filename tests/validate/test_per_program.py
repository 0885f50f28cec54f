"""Subgraphs are compared alone within the tolerances of their own type."""

from __future__ import annotations

import numpy as np
import pytest

from kintune.core.model import Tensor
from kintune.core.stage_requests import output_name, workload_of
from kintune.runtime.inputs import Array
from kintune.validate.per_program import ProgramComparison, compare_each_program


def compare(dtype: str, *pairs: tuple[Array, Array]) -> ProgramComparison:
    """What comes of one workload with these outputs."""
    tensors = [Tensor(output_name("w", n), pairs[n % len(pairs)][0].shape, dtype) for n in range(2 * len(pairs))]
    return compare_each_program(
        tensors, [*(tuned for tuned, _ in pairs), *(untuned for _, untuned in pairs)], 1e-3, 1e-3
    )


def test_names_say_the_workload() -> None:
    assert workload_of(output_name("abc", 12)) == "abc"


def test_each_output_of_each_workload_is_compared_with_its_own() -> None:
    one, other = np.ones(3, np.float32), np.zeros(3, np.float32)
    tensors = [Tensor(output_name(w, n), (3,), "float32") for w in ("a", "b") for n in range(2)]
    found = compare_each_program(tensors, [one, one, one, other], 1e-3, 1e-3)
    assert found.compared == ("a", "b")
    assert set(found.wrong) == {"b"}
    assert compare("float32", (one, one), (other, other)).wrong == {}
    assert "wrong numbers" in compare("float32", (one, one), (one, other)).wrong["w"]


@pytest.mark.parametrize(("dtype", "bound"), [("float32", 1e-3), ("float16", 2e-2), ("bfloat16", 2e-2)])
def test_short_floats_may_differ_more(dtype: str, bound: float) -> None:
    stored = np.float16 if dtype == "float16" else np.float32
    expected = np.linspace(1, 2, 50).astype(stored)
    near, far = expected * stored(1 + bound / 2), expected * stored(1 + 4 * bound)
    assert compare(dtype, (near.astype(stored), expected)).wrong == {}
    assert set(compare(dtype, (far.astype(stored), expected)).wrong) == {"w"}


def test_bytes_may_be_a_step_apart_here_and_there() -> None:
    expected = np.arange(-100, 100, dtype=np.int8).repeat(2)
    near, many, far = expected.copy(), expected + np.int8(1), expected.copy()
    near[[5, 300]] += 1
    far[5] += 2
    assert compare("int8", (near, expected)).wrong == {}
    assert set(compare("int8", (many, expected)).wrong) == set(compare("int8", (far, expected)).wrong) == {"w"}
    assert compare("int32", (expected.astype(np.int32), near.astype(np.int32))).wrong != {}
