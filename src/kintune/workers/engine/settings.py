"""What the live engine tolerates: deadlines, restarts, sizes."""

from __future__ import annotations

import msgspec

__all__ = ["EngineSettings"]


class EngineSettings(msgspec.Struct, frozen=True):
    """Patience, in seconds and in failures.

    `start_timeout_s` bounds the time until a process says hello; `reply_timeout_s` that for which a job of which no
    stage is open may think before it offers something or finishes.  A job that repeats stages when it is opened may
    take `repeat_factor` times longer for that than they took at first.  `leave_timeout_s` is the time that a process
    may take that was asked to leave.

    A kind of worker that fails to start `start_failures` times in a row ends the run; a job whose process dies
    `job_deaths` times in a row without anything committed in between has failed.

    How an item ended is committed once `hold_items` have ended or `hold_s` have passed since the first of them, when
    one more ends; where items take long, after `longest_hold_s` while others are under way.

    A place elsewhere where `losses_in_a_row` items were lost with their workers is left alone for `quarantine_s`, and
    for twice as long each time that this has not helped, up to `longest_quarantine_s`.
    """

    start_timeout_s: float = 120.0
    reply_timeout_s: float = 600.0
    repeat_factor: float = 3.0
    leave_timeout_s: float = 5.0
    start_failures: int = 3
    job_deaths: int = 4
    hold_items: int = 64
    hold_s: float = 1.0
    longest_hold_s: float = 2.0
    losses_in_a_row: int = 6
    quarantine_s: float = 30.0
    longest_quarantine_s: float = 3600.0
