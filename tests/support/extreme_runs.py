"""Runs an executable on extreme inputs, beside onnxruntime without optimisation and ONNX's reference."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from kintune.errors import KintuneError
from kintune.runtime.extreme_inputs import extreme_inputs
from kintune.validate.extreme_check import settled, typical

__all__ = ["extreme_difference"]

Arrays = list[NDArray[Any]]


def extreme_difference(
    executable: Any, proto: onnx.ModelProto, feeds: Mapping[str, NDArray[Any]], rtol: float, atol: float
) -> str:
    """What is wrong on extreme inputs that are made of `feeds`, in a line; empty if nothing is.

    Each element must be that of onnxruntime, or else that of the reference.
    """
    taken = {tensor.name: feeds[tensor.name] for tensor in executable.inputs}
    session = _session(proto)
    for each in extreme_inputs(executable.inputs, given=taken):
        wanted = list(_references(session, proto, {**feeds, **each.arrays}))
        if not wanted:
            continue
        try:
            found = list(executable.run(each.arrays).values())
        except KintuneError as error:
            return f"{each.name}: {error}"
        for number, output in enumerate(found):
            bad = np.logical_and.reduce([_differs(output, outputs[number], rtol, atol) for outputs in wanted])
            if bad.any():
                where = tuple(int(index[0]) for index in np.nonzero(bad))
                theirs = " or ".join(str(outputs[number][where]) for outputs in wanted)
                return f"{each.name}: output {number} at {list(where)} is {output[where]} instead of {theirs}"
    return ""


def _session(proto: onnx.ModelProto) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])


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


def _differs(output: NDArray[Any], wanted: NDArray[Any], rtol: float, atol: float) -> NDArray[Any]:
    """Where elements are farther from the wanted ones than is allowed."""
    if output.shape != wanted.shape or output.dtype != wanted.dtype:
        return np.ones(output.shape, bool)
    if output.dtype.kind not in "fV":
        return output != wanted
    ours, theirs = settled(output, wanted).astype(np.float64), wanted.astype(np.float64)
    with np.errstate(invalid="ignore"):
        near = np.abs(ours - theirs) <= atol * typical(wanted) + rtol * np.abs(theirs)
    return ~(near | (ours == theirs) | (np.isnan(ours) & np.isnan(theirs)))
