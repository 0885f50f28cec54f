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
from kintune.search.training_rows import of_analytic

__all__ = ["Field", "fields_of"]


class Field:
    """The sketches of one encoding, with the analytic features of their candidates.

    `settled` is True if every candidate is valid as its decisions describe it, so that it need not be replayed; compute
    locations may turn out not to exist, tiles always do.
    """

    def __init__(self, encoding: Encoding, analytic: AnalyticFeatures) -> None:
        self.encoding = encoding
        self._analytic = analytic
        self.settled = not any(isinstance(axis, Location) for axis in encoding.axes)

    def features(self, population: Population) -> NDArray[np.float32]:
        """Return feature rows, shape (n, `kintune.search.training_rows.WIDTH`)."""
        return of_analytic(self._analytic(population))

    def keys(self, population: Population) -> list[bytes]:
        """Return a key for each candidate; equal keys mean the same program, or one that takes the same time.

        Candidates that differ only in unroll limits with the same effect have equal keys.
        """
        rows = population.rows
        limits = self._analytic.limits(population)
        if limits is not None:
            number = next(i for i, axis in enumerate(self.encoding.axes) if isinstance(axis, Choice))
            rows = rows.copy()
            rows[:, self.encoding.columns[number].start] = limits
        both = np.ascontiguousarray(np.column_stack([population.sketch, rows]))
        return [row.tobytes() for row in both]

    @staticmethod
    def estimate(features: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the estimated share of the peak, shape (n,), from feature rows."""
        estimate: NDArray[np.float32] = features[:, AnalyticFeatures.ESTIMATE]
        return estimate


def fields_of(sketches: Sequence[Sketch], patterns: AccessPatterns | None, processor: Processor) -> tuple[Field, ...]:
    """Return the fields of a workload: its sketches that are tiled as `LEVELS` says, grouped by equal axes."""
    if patterns is None or all(patterns.reduces) or not any(access.written for access in patterns.accesses):
        return ()
    outlines = {sketch.digest: outline_of(sketch, patterns) for sketch in sketches}
    tiled = [sketch for sketch in sketches if outlines[sketch.digest] is not None]
    return tuple(
        Field(
            encoding,
            AnalyticFeatures(
                encoding, patterns, processor, [o for s in encoding.sketches if (o := outlines[s.digest])]
            ),
        )
        for encoding in encodings(tiled)
    )
