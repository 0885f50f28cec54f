"""Where a result runs: as kernels of Kintune, in onnxruntime, or both."""

from __future__ import annotations

import os

import msgspec

from kintune.runtime.package import read_manifest

__all__ = ["BOTH", "KERNELS", "ONNXRUNTIME", "ResultPlace", "where_it_runs"]

KERNELS, BOTH, ONNXRUNTIME = "Kintune", "Kintune and onnxruntime", "onnxruntime"
"""Kernels alone; regions of kernels in onnxruntime; no region."""


class ResultPlace(msgspec.Struct, frozen=True):
    """Where a result runs; `regions` of kernels within onnxruntime, which runs the operators `left`."""

    runs_in: str
    regions: int = 0
    left: str = ""

    @property
    def whole(self) -> bool:
        """Whether the model compiled whole, so that it needs no other runtime."""
        return self.runs_in == KERNELS


def where_it_runs(executable: str | os.PathLike[str]) -> ResultPlace:
    """Read from an executable's manifest.

    Raises:
        InputError: the file cannot be used.
    """
    hybrid = read_manifest(executable).hybrid
    if hybrid is None:
        return ResultPlace(KERNELS)
    left = ", ".join(f"{count} {operator}" for operator, count in hybrid.operators.items())
    return ResultPlace(BOTH if hybrid.regions else ONNXRUNTIME, len(hybrid.regions), left)
