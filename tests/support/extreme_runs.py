"""Runs an executable on extreme inputs, beside onnxruntime without optimisation and ONNX's reference."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from kintune.errors import KintuneError
from kintune.models.evaluation import open_session
from kintune.runtime.extreme_inputs import extreme_inputs
from kintune.validate.extreme_check import hides_nan, settled, typical

__all__ = ["KNOWN_DIFFERENCES", "extreme_difference"]

_REACH = 8  # of a transposed convolution's kernels, which are padded with zeros
KNOWN_DIFFERENCES = {
    **dict.fromkeys(
        ("test_attention_3d_causal", "test_attention_3d_diff_heads_sizes_causal", "test_attention_3d_gqa_causal"),
        "keys that a causal mask hides are not read: 0 times NaN is not computed",
    ),
    "test_gridsample_reflection_padding": "an infinite coordinate is reflected to any place",
}
"""Cases of ONNX's suite that may differ on extreme inputs, and why."""

Arrays = list[NDArray[Any]]


def extreme_difference(
    executable: Any, proto: onnx.ModelProto, feeds: Mapping[str, NDArray[Any]], rtol: float, atol: float
) -> str:
    """What is wrong on extreme inputs that are made of `feeds`, in a line; empty if nothing is.

    Each element must be that of onnxruntime, or else that of the reference.
    """
    taken = {tensor.name: feeds[tensor.name] for tensor in executable.inputs}
    session, hides = open_session(proto), hides_nan(proto)
    transposed = sum(node.op_type == "ConvTranspose" for node in proto.graph.node)
    for each in extreme_inputs(executable.inputs, given=taken):
        flushed = {name: _flushed(array) for name, array in each.arrays.items()}
        wanted = [
            outputs
            for arrays in (each.arrays, flushed)[: 1 + any(flushed[name] is not each.arrays[name] for name in flushed)]
            for outputs in _references(session, proto, {**feeds, **arrays})
        ]
        if not wanted:
            continue
        hidden, reach = hides and not each.is_ordinary, 0 if each.is_ordinary else _REACH * transposed
        try:
            found = list(executable.run(each.arrays).values())
        except KintuneError as error:
            return f"{each.name}: {error}"
        for number, output in enumerate(found):
            bad = np.logical_and.reduce(
                [_differs(output, outputs[number], rtol, atol, reach, hidden) for outputs in wanted]
            )
            if bad.any() and not each.is_borderline:
                where = tuple(int(index[0]) for index in np.nonzero(bad))
                theirs = " or ".join(str(outputs[number][where]) for outputs in wanted)
                return f"{each.name}: output {number} at {list(where)} is {output[where]} instead of {theirs}"
    return ""


def _references(session: Any, proto: onnx.ModelProto, inputs: Mapping[str, NDArray[Any]]) -> Iterator[Arrays]:
    """The outputs of the runtimes that run on these inputs."""
    from onnx.reference import ReferenceEvaluator

    names = {value.name for value in session.get_inputs()}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for run in (session.run, lambda _, fed: ReferenceEvaluator(proto).run(None, fed)):
            try:
                found = [np.asarray(each) for each in run(None, {n: v for n, v in inputs.items() if n in names})]
            except Exception:  # each raises any kind
                continue
            yield found


def _differs(
    output: NDArray[Any], wanted: NDArray[Any], rtol: float, atol: float, reach: int, hides: bool
) -> NDArray[Any]:
    """Where elements are farther from the wanted ones than is allowed."""
    if output.shape != wanted.shape or output.dtype != wanted.dtype:
        return np.ones(output.shape, bool)
    output = settled(output, wanted, reach, hides_nan=hides)
    if output.dtype.kind not in "fV":
        return np.asarray(output != wanted)
    ours, theirs = output.astype(np.float64), wanted.astype(np.float64)
    with np.errstate(invalid="ignore"):
        near = np.abs(ours - theirs) <= atol * typical(wanted) + rtol * np.abs(theirs)
    return np.asarray(~(near | (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))))


def _flushed(array: NDArray[Any]) -> NDArray[Any]:
    """The array with denormal numbers replaced by zeros, as a result computes with them; itself without any."""
    if array.dtype not in (np.float32, np.float64):
        return array
    with np.errstate(invalid="ignore"):
        are = (array != 0) & (np.abs(array) < np.finfo(array.dtype).tiny)
    return np.where(are, np.zeros_like(array), array) if are.any() else array
