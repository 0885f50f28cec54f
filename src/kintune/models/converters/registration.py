"""What a converter declares of its operator: everything else that knows operators reads it from here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from kintune.models.converters.node import Node
from kintune.models.expressions import dtype_of
from kintune.models.foreign_operators import ONNXRUNTIME_DOMAIN

__all__ = ["FLOATS", "MICROSOFT", "OF_THE_DATA", "STANDARD", "Convert", "OnnxOperator"]

STANDARD = ""
"""The domain of the ONNX standard's operators."""

MICROSOFT = ONNXRUNTIME_DOMAIN

FLOATS = ("bfloat16", "float16", "float32", "float64")

OF_THE_DATA = "the shape of its result depends on the data, so the model cannot be compiled ahead of time"

Convert: TypeAlias = Callable[[Node], Any]
"""Converts a node to the expression of its result, a Relax tuple of several, or a list for a sequence."""


@dataclass(frozen=True)
class OnnxOperator:
    """An operator from version `since` of its domain's operator set on; the newest that a file may use counts.

    `convert` is a function, or the reason why the operator is refused unless all of its inputs are constants (then it
    is evaluated, and never converted).  Inputs are counted from 0.
    """

    name: str
    convert: Convert | str
    domain: str = STANDARD
    since: int = 1
    constants: Mapping[int, str] = field(default_factory=dict)
    """Inputs that must be constants, as messages name them; a converter can ask for the values of these alone."""
    types: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """Element types that inputs may have; of inputs that are not listed, all that ONNX allows."""
    refused: Mapping[int | str, str] = field(default_factory=dict)
    """Inputs that must be left out, and attributes that must be left out or 0; each with the reason."""
    copies: bool = False
    """Whether results have elements of the first input, and nothing but these."""

    def converted(self, node: Node) -> Any:
        """What `convert` makes of a node.

        Raises:
            ValueError: when the node has what the operator's declaration excludes, or the converter refuses it.
        """
        for what, reason in self.refused.items():
            given = node.operand(what) if isinstance(what, int) else node.attributes.get(what)
            if given is not None and not (isinstance(what, str) and not given):
                raise ValueError(reason)
        for index, allowed in self.types.items():
            operand = node.operand(index)
            if operand is not None and dtype_of(operand) not in allowed:
                where = f"input {index} has " if index else ""
                raise ValueError(
                    f"{where}elements of {dtype_of(operand)}, which are not supported; "
                    f"{', '.join(allowed)} {'are' if len(allowed) > 1 else 'is'}"
                )
        if isinstance(self.convert, str):
            raise ValueError(self.convert)
        return self.convert(node)
