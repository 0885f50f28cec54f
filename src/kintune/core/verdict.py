"""The verdict of a comparison of outputs."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

__all__ = ["Verdict"]


class Verdict(str, Enum):
    """What a comparison of outputs with those of a reference found.

    RIGHT: at least one output was compared, and none that was compared differs by more than is allowed.  WRONG: one
    does, on the inputs that were drawn or given, or on a set of extreme inputs.  NOT_COMPARED: nothing could be
    compared.
    """

    RIGHT = "right"
    WRONG = "wrong"
    NOT_COMPARED = "not compared"

    @classmethod
    def of_all(cls, verdicts: Iterable[Verdict]) -> Verdict:
        """Return the verdict of several comparisons together."""
        found = set(verdicts)
        return next((each for each in (cls.WRONG, cls.RIGHT) if each in found), cls.NOT_COMPARED)

    @property
    def within_tolerance(self) -> bool | None:
        """Whether what was compared is right; None where nothing was."""
        return None if self is Verdict.NOT_COMPARED else self is Verdict.RIGHT
