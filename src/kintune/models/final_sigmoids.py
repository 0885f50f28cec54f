"""Outputs of an ONNX model that are the sigmoid of something: a reference should compute that exactly.

The sigmoid of onnxruntime is off by up to 2e-7, and 0 below -18.  A network that finds nothing in its inputs, as
detectors do in drawn ones, has no other values.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from onnx import ModelProto

from kintune.models.onnx_nodes import DEFAULT_DOMAINS, nodes
from kintune.runtime.inputs import Array

__all__ = ["exact_sigmoid", "final_sigmoids", "leave_out"]


def final_sigmoids(model: ModelProto) -> frozenset[str]:
    """The outputs of a model that a Sigmoid computes, and that no other node reads."""
    ends = {value.name for value in model.graph.output}
    read = Counter(name for node in nodes(model) for name in node.input)
    sigmoids = (n for n in model.graph.node if n.op_type == "Sigmoid" and n.domain in DEFAULT_DOMAINS)
    return frozenset(node.output[0] for node in sigmoids if node.output[0] in ends and not read[node.output[0]])


def leave_out(model: ModelProto) -> frozenset[str]:
    """Leaves out the final sigmoids, in place: these outputs, which are returned, are their inputs then."""
    found = final_sigmoids(model)
    for node in model.graph.node:
        if found.intersection(node.output):
            node.op_type = "Identity"
    return found


def exact_sigmoid(values: Array) -> Array:
    """The sigmoid of floating-point values, computed in float64."""
    with np.errstate(over="ignore"):
        return np.asarray(1 / (1 + np.exp(-values.astype(np.float64)))).astype(values.dtype)
