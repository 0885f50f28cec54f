"""What a running job shows to people: a snapshot, complete in itself, never part of the job's truth."""

from __future__ import annotations

import msgspec

__all__ = ["FamilyProgress", "ProgressReport"]


class FamilyProgress(msgspec.Struct, frozen=True):
    """How far one family of subgraphs has come.

    `subgraphs` is how many it has, `trials` how many measurements they got in this run, `best_gain` the largest
    untuned / best latency among them (1.0 while nothing better is known).
    """

    key: str
    subgraphs: int
    trials: int
    best_gain: float = 1.0


class ProgressReport(msgspec.Struct, frozen=True):
    """Where a tuning job stands.

    `stage` is the kind of the stage now running (`kintune.core.payloads.StageName`), `phase` a few words for people
    ("waiting for the device, held by process 4711").  `trials` of `trials_total` are done; the total is None when the
    budget is not counted in trials.  Times are seconds of active run time; `time_left_s` is None while it is unknown.
    `best_ms` and `untuned_ms` estimate the network's latency in milliseconds as the weighted sum of its kernels'.
    `subgraph` is the one being worked on, `failures` counts candidates that failed by cause, `reused_records` those
    whose measurement was already known, `disturbed` those that were timed again since others used the cores.
    """

    stage: str
    phase: str = ""
    trials: int = 0
    trials_total: int | None = None
    elapsed_s: float = 0.0
    time_left_s: float | None = None
    best_ms: float | None = None
    untuned_ms: float | None = None
    families: tuple[FamilyProgress, ...] = ()
    subgraph: str = ""
    failures: dict[str, int] = {}
    reused_records: int = 0
    disturbed: int = 0

    @property
    def gain(self) -> float | None:
        """How many times faster than untuned the network is estimated to be; None while either time is unknown."""
        if not self.best_ms or not self.untuned_ms:
            return None
        return self.untuned_ms / self.best_ms
