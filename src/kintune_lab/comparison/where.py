"""Where a result runs: as kernels of Kintune, in onnxruntime, or both."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from kintune.runtime.package import read_manifest

__all__ = ["BOTH", "KERNELS", "ONNXRUNTIME", "Place", "where_it_runs"]

KERNELS, BOTH, ONNXRUNTIME = "Kintune", "Kintune and onnxruntime", "onnxruntime"
"""Kernels alone; regions of kernels in onnxruntime; no region."""


class Place(msgspec.Struct, frozen=True):
    """Where a result runs; `regions` of kernels within onnxruntime, which runs the operators `left`."""

    runs_in: str
    regions: int = 0
    left: str = ""

    @property
    def whole(self) -> bool:
        """Whether the model compiled whole, so that it needs no other runtime."""
        return self.runs_in == KERNELS


def where_it_runs(executable: str | os.PathLike[str]) -> Place:
    """Read from an executable's manifest.

    Raises:
        InputError: the file cannot be used.
    """
    hybrid: Any = getattr(read_manifest(executable), "hybrid", None)
    if hybrid is None:
        return Place(KERNELS)
    count = len(hybrid.regions)
    return Place(BOTH if count else ONNXRUNTIME, count, str(hybrid.left))
