"""Chooses the threads of each kernel's call: those with which it was fastest inside the network.

Kernels take the number at run time, so none is built again.  Small kernels are often faster on the calling thread: to
wake another one takes a few microseconds.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from kintune.core.paired_ratio import paired_ratio
from kintune.core.stage_requests import ValidationContext
from kintune.errors import EngineError
from kintune.validate.baseline_protocol import ProfileTurn
from kintune.validate.interleaved import TimedEntry, time_interleaved

__all__ = [
    "ProfiledEntry",
    "choose_thread_counts",
    "counts_to_try",
    "estimate_choice_s",
    "is_faster",
    "profile_kernels",
]

_NEARLY = 1.03  # a call gets fewer threads where it takes at most this many times as long
_ROUNDS = 3
_RUNS, _SECONDS = 20, 0.15  # of a turn
_LEAST_SECONDS = 60.0  # a turn may take so long
_COMPARED_SECONDS = 1.0


class ProfiledEntry(Protocol):
    """A process with an executable, which times its kernels."""

    def profile(self, turn: ProfileTurn, seconds: float) -> dict[int, float]:
        """Returns microseconds by place in the plan.

        Raises:
            EngineError: it cannot go on.
        """


def counts_to_try(threads: int) -> tuple[int, ...]:
    """Returns 1, 2, 4 and so on up to `threads`, and that."""
    powers = (1 << bit for bit in range(threads.bit_length()))
    return tuple(sorted({*(count for count in powers if count < threads), threads}))


def estimate_choice_s(threads: int, run_s: float) -> float:
    """Estimates the seconds of the choice, without the start of its two processes, from those of one run."""
    if threads == 1:
        return 0.0
    turns = _ROUNDS * len(counts_to_try(threads))
    return turns * (run_s + max(run_s, min(_RUNS * run_s, _SECONDS))) + max(_COMPARED_SECONDS, 4 * run_s)


def profile_kernels(process: ProfiledEntry, threads: int) -> dict[int, dict[int, float]]:
    """Times every kernel's call with each number of threads, in turns; returns microseconds by number and place.

    Raises:
        EngineError: the process fails.
    """
    counts = counts_to_try(threads)
    found: dict[int, dict[int, list[float]]] = {count: {} for count in counts}
    for number in range(_ROUNDS):
        first = number % len(counts)
        for count in counts[first:] + counts[:first]:
            for place, us in process.profile(ProfileTurn(count, _RUNS, _SECONDS), _LEAST_SECONDS).items():
                found[count].setdefault(place, []).append(us)
    return {n: {place: statistics.median(us) for place, us in times.items()} for n, times in found.items()}


def choose_thread_counts(times_us: Mapping[int, Mapping[int, float]]) -> dict[int, int]:
    """Returns the number of threads by place, of calls for which it is below the largest number that was tried.

    It is the smallest number with which the call takes hardly longer than with the best one.
    """
    most = max(times_us)
    chosen = {}
    for place in times_us[most]:
        best = min(times[place] for times in times_us.values())
        count = min(count for count, times in times_us.items() if times[place] <= _NEARLY * best)
        if count < most:
            chosen[place] = count
    return chosen


def is_faster(
    plain: TimedEntry,
    chosen: TimedEntry,
    conditions: ValidationContext,
    clock: Callable[[], float],
    least: float = 0.0,
) -> bool:
    """Times the network as it was and as it was chosen, in turns; returns whether to keep what was chosen.

    It must be faster by the share `least` at least.  If that is 0, it may be slower by 1 %, since other requests can
    use the cores that fewer threads leave idle.

    Raises:
        EngineError: one of the two does not run any more.
    """
    brief = msgspec.structs.replace(conditions, rounds=8, min_rounds=2, race_seconds=_COMPARED_SECONDS)
    rounds_ms = time_interleaved((plain, chosen), brief, clock).rounds_ms
    before, after = rounds_ms.get(plain.name), rounds_ms.get(chosen.name)
    if not before or not after:
        raise EngineError("the network stopped running")
    return paired_ratio(after, before) <= (1.0 - least if least else 1.01)
