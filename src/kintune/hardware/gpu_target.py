"""Tells GPU targets from others; imports no slow module."""

from __future__ import annotations

import json

__all__ = ["GPU", "is_gpu"]

GPU = "cuda"
"""The compiler's kind of target of NVIDIA's GPUs."""


def is_gpu(target: str) -> bool:
    """Whether this canonical target (JSON) is a GPU."""
    return bool(json.loads(target).get("kind") == GPU)
