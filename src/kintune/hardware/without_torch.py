"""Starts processes faster that do not need PyTorch: the compiler imports it where it is installed, for two seconds."""

from __future__ import annotations

import sys
from typing import Any, cast

__all__ = ["allow_torch", "forbid_torch"]

_MODULES = cast("dict[str, Any]", sys.modules)


def forbid_torch() -> None:
    """Let imports of PyTorch fail from now on, as if it were not installed, unless it is already imported."""
    _MODULES.setdefault("torch", None)


def allow_torch() -> None:
    """Let imports of PyTorch succeed again."""
    if _MODULES.get("torch", sys) is None:
        del _MODULES["torch"]
