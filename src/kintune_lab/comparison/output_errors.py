"""The errors of runtimes in a comparison: of their outputs, against the model itself in its own types."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kintune.errors import InputError
from kintune.models.quantisation.output_error import output_error
from kintune.validate.baseline_protocol import BaselineTurn
from kintune.validate.plain_outputs import load_outputs

__all__ = ["REFERENCE", "OutputErrors"]

REFERENCE = "reference"
"""The name of the runtime that runs the model itself, without optimisations that change numbers."""


class OutputErrors:
    """The outputs of runtimes on the same `sets` of inputs: `.npz` files, or None for the runtime's own inputs."""

    def __init__(self, sets: Sequence[str | None], directory: Path) -> None:
        self._sets = sets or (None,)
        self._directory = directory

    def turns(self, name: str) -> list[BaselineTurn]:
        """The orders to the runtime of this name to run once on each set, on the first one last."""
        several = len(self._sets) > 1
        return [
            BaselineTurn(1, 0.0, outputs=str(self._path(name, at)), inputs=self._sets[at] if several else None)
            for at in reversed(range(len(self._sets)))
        ]

    def of(self, name: str) -> float | None:
        """The largest norm of an output's error, as a share of the norm of that output; None where it is not known."""
        try:
            return max(self._error(name, at) for at in range(len(self._sets)))
        except InputError:  # it, or the reference, has not run
            return None

    def _error(self, name: str, at: int) -> float:
        found, wanted = (list(load_outputs(str(self._path(each, at))).values()) for each in (name, REFERENCE))
        return output_error(found, wanted) if len(found) == len(wanted) else float("inf")

    def _path(self, name: str, at: int) -> Path:
        return self._directory / f"{name} {at}.npz"
