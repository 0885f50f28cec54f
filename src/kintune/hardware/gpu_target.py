"""Tells targets that are GPUs from others; imports nothing that takes time."""

from __future__ import annotations

import json

__all__ = ["GPU", "is_gpu"]

GPU = "cuda"
"""The compiler's kind of target of NVIDIA's GPUs."""


def is_gpu(target: str) -> bool:
    """Whether this canonical target is a GPU."""
    return bool(json.loads(target).get("kind") == GPU)
