"""A foreign tuner's database as values; free of TVM, so that the front can hand one to records."""

from __future__ import annotations

import msgspec

from kintune.core.candidate import Candidate, Sketch
from kintune.core.payloads import Subgraph

__all__ = ["Exported", "Measured", "TuningDatabase"]


class Measured(msgspec.Struct, frozen=True):
    """A candidate, its run times in microseconds, and the canonical target (JSON) it was built for."""

    candidate: Candidate
    times_us: tuple[float, ...]
    target: str


class TuningDatabase(msgspec.Struct, frozen=True):
    """Measured candidates with all that it takes to replay them.

    `modules` maps workload digests to serialised programs.  `skipped` counts what was left out, by reason.
    """

    subgraphs: tuple[Subgraph, ...]
    modules: dict[str, bytes]
    sketches: tuple[Sketch, ...]
    measured: tuple[Measured, ...]
    skipped: dict[str, int] = {}


class Exported(msgspec.Struct, frozen=True):
    """How many records were written, and how many were left out, by reason."""

    written: int
    skipped: dict[str, int]
