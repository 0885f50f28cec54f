"""How long a validation takes, by estimate."""

from __future__ import annotations

from kintune.core.stage_requests import ValidationContext
from kintune.validate.interleaved import QUICK_SECONDS, TURN_SECONDS, WARM_SECONDS
from kintune.validate.thread_choice import estimate_choice_s
from kintune.validate.validation_run import SLOW_UNTUNED_SECONDS

__all__ = ["estimate_validation_s"]

_START_S = 1.0  # a process starts, loads its libraries and the network; torch, which compiles first, takes longer


def estimate_validation_s(conditions: ValidationContext, *, tuned_s: float, untuned_s: float, baselines: int) -> float:
    """Estimates the seconds of a validation from those of one run of the tuned and of the untuned network.

    Baselines are assumed to be as fast as the tuned network.

    Most of the time goes to the single run of a slow untuned network, or else to the interleaved timing.
    """
    untuned_s = min(untuned_s, conditions.untuned_seconds)
    if untuned_s > SLOW_UNTUNED_SECONDS and baselines:
        untuned_s = 0.0
    processes = [tuned_s] * (1 + baselines)
    starting = untuned_s + _START_S
    if choice_s := estimate_choice_s(conditions.threads, tuned_s):
        starting += choice_s + 2 * (_START_S + tuned_s)
    starting += _START_S + tuned_s if baselines else 0.0  # a runtime that runs the model itself, to compare numbers
    if untuned_s < QUICK_SECONDS:
        processes.append(untuned_s)
    starting += sum(_START_S + run_s for run_s in processes)
    turns_s = sum(_turn_s(run_s, conditions.runs) for run_s in processes)
    least_s = conditions.min_rounds * turns_s
    return starting + min(conditions.rounds * turns_s, max(least_s, conditions.race_seconds + turns_s / 2))


def _turn_s(run_s: float, runs: int) -> float:
    return max(WARM_SECONDS, run_s) + min(runs * run_s, max(TURN_SECONDS, run_s))
