"""What candidates take to be built, learnt from those that were built, and what that makes them worth.

Most programs are compiled in a twentieth of a second; a few are unrolled so far that they take thirty times as long,
and those are hardly ever fast.  A search that builds what its model likes best pays a third to a half of its building
time for them, and for nothing (figures in `docs/notebook/2026-11-22-search-waste.md`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from kintune.search.cost_model import Trees

__all__ = ["BuildCosts", "Price", "patience_s"]

Id = TypeVar("Id", bound=Hashable)

Price: TypeAlias = Callable[[NDArray[np.float32]], NDArray[np.float64]]
"""From features, shape (n, width), to factors in (0, 1], shape (n,): what a score is worth by what it costs to test."""

_LEARNT_FROM = (64, 128, 256, 512, 1024, 2048)  # builds after which it is learnt anew; more would tell nothing new
_ROUNDS, _DEPTH = 60, 4
_DEAR = 3.0  # times the usual seconds
_STEEPNESS = 0.25  # who takes 16 times as long as that must promise to be twice as fast

_ENOUGH = 32  # builds after which the usual seconds are known
_PATIENCE = 40.0  # times these ...
_LEAST_PATIENCE_S = 3.0  # ... and this at least is given to one build


def patience_s(seconds: Sequence[float], most: float) -> float:
    """Seconds after which another build is given up, at most `most`, when those so far took these.

    Once in some hundred programs one is unrolled so far that its compilation takes a minute, as long as all others of a
    round together.
    """
    if len(seconds) < _ENOUGH:
        return most
    return min(most, max(_LEAST_PATIENCE_S, _PATIENCE * float(np.median(seconds))))


class BuildCosts:
    """A fold over the builds of one search.  What is learnt follows from the builds noted so far, and nothing else."""

    def __init__(self, *, seed: int, threads: int) -> None:
        self._seed = seed
        self._threads = threads
        self._rows: list[NDArray[np.float32]] = []
        self._seconds: list[float] = []
        self._learnt: tuple[int, Trees] | None = None

    def note(self, features: NDArray[np.float32], seconds: float) -> None:
        """A candidate with these features took so many seconds to be built (or to be given up)."""
        if features.size and seconds > 0:
            self._rows.append(features)
            self._seconds.append(seconds)

    def price(self, of_the_best: Sequence[float] = ()) -> Price | None:
        """What dear candidates are worth; None while too few were built to tell.

        `of_the_best` are the seconds that the fastest programs of a workload took: where those are dear, it takes more
        to be called so.
        """
        model = self._model()
        if model is None:
            return None
        usual = float(np.median(self._seconds))
        if of_the_best:
            usual = max(usual, float(np.median(of_the_best)))
        dear = math.log(_DEAR * usual)

        def price(features: NDArray[np.float32]) -> NDArray[np.float64]:
            over = model.predict(features).astype(np.float64) - dear
            return np.asarray(np.exp(-_STEEPNESS * np.maximum(0.0, over)))

        return price

    def patience_s(self, most: float) -> float:
        """Seconds after which another build is given up, at most `most`."""
        return patience_s(self._seconds, most)

    def dearest_first(self, ids: Sequence[Id], rows: Mapping[Id, NDArray[np.float32]]) -> list[Id]:
        """Candidates in the order in which several workers are done with building them soonest; `rows` are features.

        Longest processing time first (Graham, SIAM J. Appl. Math. 17(2), 1969): a dear one is not waited for at the end
        while other workers have nothing to do.  Of which nothing can be told come last, in their order.
        """
        model, known = self._model(), [id for id in ids if id in rows and rows[id].size]
        if model is None or not known:
            return list(ids)
        logarithms = dict(zip(known, model.predict(np.stack([rows[id] for id in known])), strict=True))
        return sorted(ids, key=lambda id: -logarithms.get(id, -math.inf))

    def _model(self) -> Trees | None:
        """Predicts the logarithm of the seconds."""
        count = max((n for n in _LEARNT_FROM if n <= len(self._rows)), default=0)
        if count and (self._learnt is None or self._learnt[0] != count):
            features, labels = np.stack(self._rows[:count]), np.log(np.array(self._seconds[:count], np.float32))
            trees = Trees.train(features, labels, seed=self._seed, threads=self._threads, rounds=_ROUNDS, depth=_DEPTH)
            self._learnt = (count, trees)
        return None if self._learnt is None else self._learnt[1]
