"""How far a family's model is believed: an immature one must not waste the budget on what it foresees.

FamilySeer (arXiv 2201.00194) names the weakness: in a large search space a model that has seen little spends the small
rounds on candidates that turn out slow.
"""

from __future__ import annotations

import numpy as np

from kintune.search.ranking import pair_accuracy

__all__ = ["Trust"]

_HOLDS = 0.6  # share of pairs in the right order from which on predictions hold
_CHANCE = 0.5
_LEAST_PAIRS = 6  # below, the order says nothing
_GIVEN_UP = 3  # doubts after which a family's foresee rounds stop


class Trust:
    """Doubts about each family's model, from how its predictions compare with what was measured.

    A foresee round shrinks by half for every doubt, and is left out at three.  Full rounds are judged too, so that a
    family regains its foresee rounds as its model gets better.
    """

    def __init__(self) -> None:
        self._doubts: dict[str, int] = {}

    def size(self, family: str, full: int) -> int:
        """The candidates that a foresee round of the family gets, of `full` at most."""
        doubts = self._doubts.get(family, 0)
        return 0 if doubts >= _GIVEN_UP else full >> doubts

    def judge(
        self, family: str, predicted: list[float], times_us: list[float], *, foreseen: bool, improved: bool
    ) -> None:
        """A round of the family was measured: scores and times of its candidates, in the same order.

        `foreseen` says that it was a foresee round, `improved` that it brought its subgraph a better program.
        """
        accuracy, pairs = pair_accuracy(np.array(predicted, np.float32), np.array(times_us, np.float64))
        ranked = accuracy if pairs >= _LEAST_PAIRS else float("nan")
        doubts = self._doubts.get(family, 0)
        if (foreseen and improved) or ranked >= _HOLDS:
            self._doubts[family] = max(0, doubts - 1)
        elif (foreseen and not improved) or ranked < _CHANCE:
            self._doubts[family] = min(_GIVEN_UP, doubts + 1)
