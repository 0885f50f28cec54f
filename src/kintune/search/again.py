"""What is known and timed again in each of a subgraph's rounds, beside the programs that are new.

The fastest known programs are partly the fastest and partly lucky: they ran in a fast minute of a machine that is not
always as fast.  Timed again they show it.  But where all of them take another time by the same large factor, that is
the minute: somebody uses the other half of a core, or has stopped doing so.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from kintune.space.candidate import Candidate

__all__ = ["tempo"]

_LUCK = 1.1
"""By what factor the fastest of hundreds of programs may be slower when they are timed again, for no reason but that.

Brought to the pace of earlier rounds, new programs would seem faster by as much as known ones were lucky, would be
known as such, and so on: estimates would fall for ever.  So a pace within this factor counts as none."""


def tempo(known_us: Mapping[Candidate, float], again_us: Mapping[Candidate, float]) -> float:
    """How many times as long programs take in this minute as they are known to; 1.0 where that may be luck."""
    if not again_us:
        return 1.0
    pace = statistics.median(time / known_us[candidate] for candidate, time in again_us.items())
    return pace if not 1 / _LUCK <= pace <= _LUCK else 1.0
