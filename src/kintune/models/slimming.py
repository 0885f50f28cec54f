"""Simplify a graph before import: shapes computed at run time become constants, and constants are folded.

Exporters leave chains of Shape, Gather and Concat that say nothing new once the input shapes are known; the importer
cannot follow them.
"""

from __future__ import annotations

import logging

import numpy as np
from onnx import ModelProto, helper, numpy_helper

from kintune.models.quiet import quiet
from kintune.models.walk import nodes

__all__ = ["slim"]

_LOGGER = logging.getLogger("onnxslim")

_SHORTHANDS = {"value_float": "<f4", "value_floats": "<f4", "value_int": "<i8", "value_ints": "<i8"}
"""Attribute of a Constant node -> the element type of the tensor it stands for."""


def slim(model: ModelProto) -> ModelProto:
    """Simplify `model`, whose input shapes must be fixed.  Its inputs and outputs keep their names and order.

    A model that cannot be simplified is returned as it is: what stands in the importer's way is reported there.
    """
    original = ModelProto()
    original.CopyFrom(model)
    _spell_out_constants(original)
    model = ModelProto()
    model.CopyFrom(original)
    try:
        with quiet():
            import onnxslim

            if not _LOGGER.handlers:
                _LOGGER.addHandler(logging.NullHandler())  # or it installs one that writes to the terminal

            slimmed: ModelProto = onnxslim.slim(model)
    except Exception:  # the library raises whatever it stumbles over
        return original
    if [value.name for value in slimmed.graph.output] != [value.name for value in original.graph.output]:
        return original
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
