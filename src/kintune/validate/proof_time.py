"""How long a proof takes, roughly; free of TVM."""

from __future__ import annotations

from kintune.core.validation import ProveContext
from kintune.validate.race import QUICK_SECONDS, TURN_SECONDS, WARM_SECONDS

__all__ = ["seconds_of_proof"]

_ENTERING_S = 1.0  # a process starts, loads its libraries and the network; torch, which compiles first, takes longer


def seconds_of_proof(conditions: ProveContext, *, tuned_s: float, untuned_s: float, rivals: int) -> float:
    """Seconds, from those that one run takes of the network tuned and untuned; rivals are taken to be as fast as ours.

    Most of it is the single run of a slow untuned network, or else what the entrants are timed for.
    """
    untuned_s = min(untuned_s, conditions.untuned_seconds)
    entrants = [tuned_s] * (1 + rivals)
    entering = untuned_s + _ENTERING_S
    entering += _ENTERING_S + tuned_s if rivals else 0.0  # whoever runs the model itself, to compare numbers
    if untuned_s < QUICK_SECONDS:
        entrants.append(untuned_s)
    entering += sum(_ENTERING_S + run_s for run_s in entrants)
    turns_s = sum(_turn_s(run_s, conditions.runs) for run_s in entrants)
    least_s = conditions.min_rounds * turns_s
    return entering + min(conditions.rounds * turns_s, max(least_s, conditions.race_seconds + turns_s / 2))


def _turn_s(run_s: float, runs: int) -> float:
    return max(WARM_SECONDS, run_s) + min(runs * run_s, max(TURN_SECONDS, run_s))
