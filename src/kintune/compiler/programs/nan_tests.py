"""Tests for NaN in the expressions of programs, in a form that TVM vectorises."""

from __future__ import annotations

import math
from typing import Any

from tvm import tirx

from kintune.compiler.tir import called

__all__ = ["FLOATS", "if_number", "is_nan", "keeping_nan"]

FLOATS = ("float16", "float32", "float64")
"""The element types of which such a test may be made."""


def keeping_nan(kind: Any) -> Any:
    """The maximum or minimum of two values (`tirx.Max` or `tirx.Min`) that is NaN where the first one is."""

    def combine(found: Any, value: Any) -> Any:
        if str(found.ty) in FLOATS:
            return if_number(found, kind(found, value), found)
        return tirx.Select(tirx.isnan(found), found, kind(found, value))

    return combine


def if_number(value: Any, number: Any, otherwise: Any) -> Any:
    """`number` unless `value` is NaN, as an expression that TVM vectorises.

    It does not vectorise `isnan`, and simplifies `value == value` to true.
    """
    return tirx.Select(value <= tirx.const(math.inf, str(value.ty)), number, otherwise)


def is_nan(condition: Any) -> bool:
    """Whether an expression is a call of `isnan`."""
    return called(condition) == "tirx.isnan"
