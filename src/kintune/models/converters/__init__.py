"""Converters of ONNX operators, which take precedence over those of TVM's own importer; one file for each group.

Each group has a table `CONVERTERS`: the name of an operator, and the function that converts a node of it.
"""

from __future__ import annotations

from kintune.models.converters import (
    activations,
    arithmetic,
    attention,
    blockwise,
    contributed,
    convolution,
    einsum,
    folding,
    indexing,
    integer_products,
    normalisation,
    pooling,
    quantised,
    quantised_contributed,
    recurrent,
    reduction,
    regions,
    resize,
    sampling,
    sequences,
    shaping,
    transforms,
)
from kintune.models.converters.node import Converter

__all__ = ["CONVERTERS"]

_GROUPS = (
    activations,
    arithmetic,
    attention,
    blockwise,
    contributed,
    convolution,
    einsum,
    folding,
    indexing,
    integer_products,
    normalisation,
    pooling,
    quantised,
    quantised_contributed,
    recurrent,
    reduction,
    regions,
    resize,
    sampling,
    sequences,
    shaping,
    transforms,
)

CONVERTERS = {name: Converter(convert) for group in _GROUPS for name, convert in group.CONVERTERS.items()}
"""Operator name -> the converter to use for it."""
