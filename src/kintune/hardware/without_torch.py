"""Starts processes faster that do not need PyTorch: the compiler imports it where it is installed, for two seconds."""

from __future__ import annotations

import sys
from typing import Any, cast

__all__ = ["allow_torch", "forbid_torch"]

_MODULES = cast("dict[str, Any]", sys.modules)
_FORBIDDEN: set[str] = set()  # "torch", if it is forbidden by this module: others may say that it is not installed


def forbid_torch() -> None:
    """Let imports of PyTorch fail from now on, as if it were not installed, unless it is already imported."""
    if "torch" not in _MODULES:
        _MODULES["torch"] = None
        _FORBIDDEN.add("torch")


def allow_torch() -> None:
    """Let imports of PyTorch succeed again, if `forbid_torch` has stopped them."""
    if "torch" in _FORBIDDEN:
        _FORBIDDEN.remove("torch")
        del _MODULES["torch"]
