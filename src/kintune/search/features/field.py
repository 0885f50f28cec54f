"""Fields: parts of a workload's search space whose candidates have analytic features."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kintune.core.candidate import Choice, Location, Sketch
from kintune.search.access_patterns import AccessPatterns
from kintune.search.features.analytic import AnalyticFeatures
from kintune.search.features.encoding import Encoding, Population, encodings
from kintune.search.features.outline import outline_of
from kintune.search.processor import Processor
from kintune.search.training_rows import of_traits

__all__ = ["Field", "fields_of"]


class Field:
    """The sketches of one encoding, with the analytic features of their candidates.

    `settled` is True if every candidate is valid as its decisions describe it, so that it need not be replayed; compute
    locations may turn out not to exist, tiles always do.
    """

    def __init__(self, frame: Encoding, traits: AnalyticFeatures) -> None:
        self.frame = frame
        self._traits = traits
        self.settled = not any(isinstance(axis, Location) for axis in frame.axes)

    def features(self, herd: Population) -> NDArray[np.float32]:
        """Return feature rows, shape (n, `kintune.search.training_rows.WIDTH`)."""
        return of_traits(self._traits(herd))

    def keys(self, herd: Population) -> list[bytes]:
        """Return a key for each candidate; equal keys mean the same program, or one that takes the same time.

        Candidates that differ only in unroll limits with the same effect have equal keys.
        """
        rows = herd.rows
        limits = self._traits.limits(herd)
        if limits is not None:
            number = next(i for i, axis in enumerate(self.frame.axes) if isinstance(axis, Choice))
            rows = rows.copy()
            rows[:, self.frame.columns[number].start] = limits
        both = np.ascontiguousarray(np.column_stack([herd.sketch, rows]))
        return [row.tobytes() for row in both]

    @staticmethod
    def estimate(features: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the estimated share of the peak, shape (n,), from feature rows."""
        estimate: NDArray[np.float32] = features[:, AnalyticFeatures.ESTIMATE]
        return estimate


def fields_of(sketches: Sequence[Sketch], anatomy: AccessPatterns | None, machine: Processor) -> tuple[Field, ...]:
    """Return the fields of a workload: its sketches that are tiled as `LEVELS` says, grouped by equal axes."""
    if anatomy is None or all(anatomy.reduces) or not any(access.written for access in anatomy.accesses):
        return ()
    outlines = {sketch.digest: outline_of(sketch, anatomy) for sketch in sketches}
    tiled = [sketch for sketch in sketches if outlines[sketch.digest] is not None]
    return tuple(
        Field(
            frame, AnalyticFeatures(frame, anatomy, machine, [o for s in frame.sketches if (o := outlines[s.digest])])
        )
        for frame in encodings(tiled)
    )
