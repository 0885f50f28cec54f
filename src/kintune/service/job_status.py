"""The life of a job: which step may follow which.  Pure; whoever changes a job's state asks here first."""

from __future__ import annotations

from enum import Enum

from kintune.errors import OrderError

__all__ = ["ENDS", "State", "Wish", "after", "may_wish"]


class State(str, Enum):
    """Where a job is."""

    QUEUED = "queued"
    CHECKING = "checking"
    TUNING = "tuning"
    PACKAGING = "packaging"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def over(self) -> bool:
        """Whether nothing more happens to the job."""
        return self in ENDS


ENDS = frozenset({State.DONE, State.FAILED, State.CANCELLED})
"""The states that a job does not leave."""

_FOLLOWS: dict[State, frozenset[State]] = {
    State.QUEUED: frozenset({State.CHECKING, State.FAILED, State.CANCELLED}),
    State.CHECKING: frozenset({State.TUNING, State.PACKAGING, State.DONE, State.FAILED, State.CANCELLED}),
    State.TUNING: frozenset({State.PACKAGING, State.DONE, State.FAILED, State.CANCELLED}),
    State.PACKAGING: frozenset({State.DONE, State.FAILED, State.CANCELLED}),
    State.DONE: frozenset(),
    State.FAILED: frozenset(),
    State.CANCELLED: frozenset(),
}


class Wish(str, Enum):
    """What somebody may ask of a job that is under way."""

    CANCEL = "cancel"
    FINISH = "finish"
    PRIORITY = "priority"


def after(before: State, now: State) -> State:
    """The state `now`, if a job in the state `before` may come into it; staying where it is counts as well.

    An orchestrator that was killed between a step and what follows from it takes the step again, so a job may go back
    to checking from wherever it was under way.

    Raises:
        OrderError: it may not.
    """
    again = now is State.CHECKING and not before.over
    if now is not before and now not in _FOLLOWS[before] and not again:
        raise OrderError(f"a job that is {before.value} cannot become {now.value}")
    return now


def may_wish(state: State, wish: Wish) -> bool:
    """Whether it makes sense to ask that of a job in this state."""
    if wish is Wish.FINISH:
        return state is State.TUNING
    return not state.over
