"""What the live engine tolerates: deadlines, restarts, sizes."""

from __future__ import annotations

import msgspec

__all__ = ["EngineSettings"]


class EngineSettings(msgspec.Struct, frozen=True):
    """Time-outs in seconds, and how many failures are tolerated.

    `start_timeout_s` bounds the time until a process says hello; `reply_timeout_s` that in which a job without an open
    stage must offer one or finish.  A job that repeats stages when it is opened may take `repeat_factor` times as long
    as they took at first in addition.  `leave_timeout_s` bounds the time that a process takes to exit when asked to.

    A kind of worker that fails to start `start_failures` times in a row ends the run; a job whose process dies
    `job_deaths` times in a row without anything committed in between has failed.

    Ends of items are held and committed together: when one more ends and `hold_items` are held or the first is `hold_s`
    old, or when the first is `longest_hold_s` old while others are under way.

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
