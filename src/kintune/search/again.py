"""What is known and timed again in each of a subgraph's rounds, beside the programs that are new.

The fastest known programs are partly the fastest and partly lucky: they ran in a fast minute of a machine that is not
always as fast.  The same programs in the same minute as the new ones tell both: how fast the minute is, by the median
of their ratios, and who of them was lucky, by what is left of each ratio.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from kintune.space.candidate import Candidate

__all__ = ["tempo"]


def tempo(known_us: Mapping[Candidate, float], again_us: Mapping[Candidate, float]) -> float:
    """How many times as long programs take in this minute as they are known to; 1.0 where none was timed again."""
    ratios = [time / known_us[candidate] for candidate, time in again_us.items()]
    return statistics.median(ratios) if ratios else 1.0
