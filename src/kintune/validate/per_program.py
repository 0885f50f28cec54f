"""Whether each program of a network computes what the untuned one computes, from what it gets in the network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from kintune.core.model import Tensor
from kintune.core.stage_requests import workload_of
from kintune.measure.agreement import disagreement
from kintune.runtime.inputs import Array

__all__ = ["ProgramComparison", "compare_each_program"]

_STEP_SHARE = 0.01  # of bytes, so many may be one step apart: what is rounded to them lies between two at times
_SHORT = frozenset({"bfloat16", "float16"})
_SHORT_TOLERANCE = 2e-2


class ProgramComparison(NamedTuple):
    """Which workloads were compared alone, and by workload how those that are wrong differ, or why some were not."""

    compared: tuple[str, ...] = ()
    wrong: Mapping[str, str] = {}
    left_out: Mapping[str, str] = {}


def compare_each_program(
    tensors: Sequence[Tensor], outputs: Sequence[Array], rtol: float, atol: float
) -> ProgramComparison:
    """Compare the outputs of a network that computes each subgraph twice.

    `tensors` describe the outputs: of each workload first those of its chosen program, then those of the untuned one.
    """
    of: dict[str, list[int]] = {}
    for at, tensor in enumerate(tensors):
        of.setdefault(workload_of(tensor.name), []).append(at)
    wrong: dict[str, str] = {}
    for workload, places in of.items():
        half = len(places) // 2
        for tuned, untuned in zip(places[:half], places[half:], strict=True):
            if workload not in wrong and (
                found := _differ(tensors[tuned], outputs[tuned], outputs[untuned], rtol, atol)
            ):
                wrong[workload] = found
    return ProgramComparison(tuple(of), wrong)


def _differ(tensor: Tensor, actual: Array, expected: Array, rtol: float, atol: float) -> str:
    """How they differ, within the tolerances of their own type, as a line; empty when they do not."""
    if not expected.size:
        return ""
    if expected.dtype.itemsize == 1 and expected.dtype.kind in "iu":
        steps = np.abs(actual.astype(np.int16) - expected.astype(np.int16))
        if steps.max() <= 1 and np.count_nonzero(steps) <= _STEP_SHARE * steps.size:
            return ""
    if tensor.dtype in _SHORT:
        rtol, atol = max(rtol, _SHORT_TOLERANCE), max(atol, _SHORT_TOLERANCE)
    return disagreement(actual, expected, rtol, atol)
