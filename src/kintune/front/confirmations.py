"""What a run has found out about its finalists so far, heat by heat."""

from __future__ import annotations

import msgspec

from kintune.job.payloads import Profiled, StageName
from kintune.measure.outcome import Outcome
from kintune.records import Store

__all__ = ["Confirmations"]


class Confirmations:
    """Joins the outcomes of each finalist of one run.  They are read from its events when they are needed first."""

    def __init__(self, store: Store, run_id: str) -> None:
        self._store = store
        self._run_id = run_id
        self._joined: dict[str, Outcome] | None = None

    def add(self, profiled: Profiled) -> Outcome:
        """One more outcome, whose event is not written down yet; all of that finalist's together."""
        if self._joined is None:
            self._joined = {}
            for event in self._store.events.history(self._run_id):
                if event.kind == StageName.CONFIRM:
                    self._join(self._joined, msgspec.msgpack.decode(event.payload, type=Profiled))
        return self._join(self._joined, profiled)

    def forget(self) -> None:
        """What was added since events were written down the last time is no more."""
        self._joined = None

    @staticmethod
    def _join(joined: dict[str, Outcome], profiled: Profiled) -> Outcome:
        before = joined.get(profiled.candidate)
        joined[profiled.candidate] = profiled.outcome if before is None else before.joined(profiled.outcome)
        return joined[profiled.candidate]
