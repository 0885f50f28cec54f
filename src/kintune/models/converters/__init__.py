"""Converters that replace the stock ONNX importer's, one file a group of operators.

Each group offers `CONVERTERS`: the name of an operator and what converts it.
"""

from __future__ import annotations

from typing import Any

from kintune.models.converters import (
    activations,
    arithmetic,
    casts,
    convolution,
    determinant,
    indexing,
    normalisation,
    padding,
    pooling,
    quantised,
    reduction,
    resize,
    sequences,
    shaping,
)

__all__ = ["CONVERTERS"]

_GROUPS = (
    activations,
    arithmetic,
    casts,
    convolution,
    determinant,
    indexing,
    normalisation,
    padding,
    pooling,
    quantised,
    reduction,
    resize,
    sequences,
    shaping,
)

CONVERTERS: dict[str, Any] = {name: converter for group in _GROUPS for name, converter in group.CONVERTERS.items()}
"""Operator name -> the converter to use for it."""
