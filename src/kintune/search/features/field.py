"""A part of a workload's search space whose candidates can be described by arithmetic alone."""

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
    """The sketches of one frame and what can be said of their candidates.

    `settled` says that every candidate makes the program that its decisions describe, so that none need be replayed to
    know it: a compute location may turn out not to exist, a tile always does.
    """

    def __init__(self, frame: Encoding, traits: AnalyticFeatures) -> None:
        self.frame = frame
        self._traits = traits
        self.settled = not any(isinstance(axis, Location) for axis in frame.axes)

    def features(self, herd: Population) -> NDArray[np.float32]:
        """Feature rows, shape (n, `kintune.search.training_rows.WIDTH`)."""
        return of_traits(self._traits(herd))

    def keys(self, herd: Population) -> list[bytes]:
        """What equal programs have in common: equal keys, as far as arithmetic can tell.

        Those that differ in nothing but a limit of unrolling that makes no difference are mostly one program, and if
        not, they take the same time.
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
        """What share of the peak such programs may reach, shape (n,): a guess that takes no measurements."""
        estimate: NDArray[np.float32] = features[:, AnalyticFeatures.ESTIMATE]
        return estimate


def fields_of(sketches: Sequence[Sketch], anatomy: AccessPatterns | None, machine: Processor) -> tuple[Field, ...]:
    """The fields of a workload: its sketches that tile the block of `anatomy` at several levels, by equal axes."""
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
