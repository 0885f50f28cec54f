"""Simplify a graph before import: shapes computed at run time become constants, and constants are folded.

Exporters leave chains of Shape, Gather and Concat that say nothing new once the input shapes are known; the importer
cannot follow them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, helper, numpy_helper

from kintune.models.quiet import quiet
from kintune.models.slim_check import Original, Unchecked
from kintune.models.walk import nodes

__all__ = ["slim"]

_LOGGER = logging.getLogger(__name__)
_LIBRARY_LOGGER = logging.getLogger("onnxslim")

_WAYS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("", {}),
    (" without fusing nodes", {"skip_optimizations": ["graph_fusion"]}),
    (" without its inference of shapes", {"no_shape_infer": True}),
    (" without both", {"no_shape_infer": True, "skip_optimizations": ["graph_fusion", "constant_folding"]}),
)
"""Ways to simplify, those that leave the least first."""

_SHORTHANDS = {"value_float": "<f4", "value_floats": "<f4", "value_int": "<i8", "value_ints": "<i8"}
"""Attribute of a Constant node -> the element type of the tensor it stands for."""


def slim(model: ModelProto, label: str = "", outside: Mapping[str, NDArray[Any]] | None = None) -> ModelProto:
    """Simplify `model`, whose input shapes must be fixed.  Its inputs and outputs keep their names and order.

    `outside` has the values of inputs that are weights; `label` names the model in the log.  What comes out is compared
    with the original in onnxruntime; where it computes something else, fewer kinds of rewriting are tried, and at last
    the model is returned as it is, as one that cannot be simplified at all.  What stands in the importer's way is
    reported there.
    """
    original = ModelProto()
    original.CopyFrom(model)
    _spell_out_constants(original)
    name = label or "the model"
    reference: Original | None = None
    unchecked = False
    for what, options in _WAYS:
        slimmed = _slimmed(original, options)
        if slimmed is None:
            continue
        if reference is None and not unchecked:
            try:
                reference = Original(original, outside or {})
            except Unchecked as error:
                unchecked = True
                _LOGGER.warning("%s: the simplified graph is used without a comparison: %s", name, error)
        if reference is None or not (difference := reference.difference(slimmed)):
            return slimmed
        _LOGGER.warning("%s: simplified%s it computes something else (%s)", name, what, difference)
    _LOGGER.warning("%s: the graph is used as it is in the file", name)
    return original


def _slimmed(original: ModelProto, options: Mapping[str, Any]) -> ModelProto | None:
    """The model simplified; None where the library fails, or loses outputs."""
    model = ModelProto()
    model.CopyFrom(original)
    try:
        with quiet():
            import onnxslim

            if not _LIBRARY_LOGGER.handlers:
                _LIBRARY_LOGGER.addHandler(logging.NullHandler())  # or it installs one that writes to the terminal

            slimmed: ModelProto = onnxslim.slim(model, **options)
    except Exception:  # the library raises whatever it stumbles over
        return None
    if [value.name for value in slimmed.graph.output] != [value.name for value in original.graph.output]:
        return None
    _keep_inputs(original, slimmed)
    return slimmed


def _spell_out_constants(model: ModelProto) -> None:
    """Turn the shorthands of Constant nodes (`value_float` and its like) into tensors, which everybody understands."""
    for node in nodes(model):
        if node.op_type != "Constant":
            continue
        for attribute in node.attribute:
            if attribute.name in _SHORTHANDS:
                values = np.array(helper.get_attribute_value(attribute), _SHORTHANDS[attribute.name])
                del node.attribute[:]
                node.attribute.append(helper.make_attribute("value", numpy_helper.from_array(values)))
                break


def _keep_inputs(original: ModelProto, slimmed: ModelProto) -> None:
    """Give back the inputs that are of no use, in their place: callers will still pass them."""
    del slimmed.graph.input[:]
    slimmed.graph.input.extend(original.graph.input)
