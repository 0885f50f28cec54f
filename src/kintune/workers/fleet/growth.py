"""When to ask for more hosts, and when to let some go.  Pure: `now` is an argument."""

from __future__ import annotations

import math

from kintune.workers.fleet.backlog import Load

__all__ = ["Growth"]

_PATIENCE_S = 5.0  # for which the queue must be long
_IDLE_S = 60.0  # for which it must be short, and cores have nothing to do
_SHORT = 0.25  # of the limit


class Growth:
    """Asks for so many cores that the queue is done within `after_s`, but for no more than `most`."""

    def __init__(self, after_s: float, most: int) -> None:
        self._after_s = after_s
        self._most = most
        self._asked: int | None = None
        self._long_since: float | None = None
        self._short_since: float | None = None

    @property
    def asked(self) -> int | None:
        """For how many cores in all it has asked last; None: for none yet, and what is there may stay."""
        return self._asked

    def step(self, now: float, load: Load) -> int | None:
        """How many cores are to be there in all from now on; None: as many as were asked for before."""
        long = load.wait_s > self._after_s
        short = load.wait_s < _SHORT * self._after_s and load.busy < load.cores
        self._long_since = (now if self._long_since is None else self._long_since) if long else None
        self._short_since = (now if self._short_since is None else self._short_since) if short else None
        patience_s = _PATIENCE_S if load.cores else 0.0
        if self._long_since is not None and now - self._long_since >= patience_s:
            needed = max(load.busy + math.ceil(load.work_s / self._after_s), load.unplaced)
            return self._ask(max(self._asked or 0, min(self._most, needed)))
        if self._short_since is not None and now - self._short_since >= _IDLE_S:
            return self._ask(load.busy)
        return None

    def _ask(self, cores: int) -> int | None:
        if cores == self._asked:
            return None
        self._asked = cores
        return cores
