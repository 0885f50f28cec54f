"""A model of build times, learnt from the builds of the search, and the discount of scores that follows from it.

Most programs are compiled in 0.05 seconds.  A few are unrolled so far that they take thirty times as long, and these
are rarely fast.  Without this model, a search spends a third to a half of its build time on them in vain (figures in
`notebook/2026-11-22-search-waste.md`).
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
"""Maps features, shape (n, width), to factors of the scores in (0, 1], shape (n,): below 1 for long builds."""

_LEARNT_FROM = (64, 128, 256, 512, 1024, 2048)  # numbers of builds after which the model is trained again
_ROUNDS, _DEPTH = 60, 4
_DEAR = 3.0  # times the median build time, above which a build is expensive
_STEEPNESS = 0.25  # a build 16 times as long as that halves the score

_ENOUGH = 32  # builds after which the median is used
_PATIENCE = 40.0  # limit of one build, times the median
_LEAST_PATIENCE_S = 3.0  # the limit is at least this


def patience_s(seconds: Sequence[float], most: float) -> float:
    """Return the time limit in seconds for one build, at most `most`, from the `seconds` of earlier builds.

    About one program in some hundreds is unrolled so far that its compilation takes a minute, as long as all others of
    a round together.
    """
    if len(seconds) < _ENOUGH:
        return most
    return min(most, max(_LEAST_PATIENCE_S, _PATIENCE * float(np.median(seconds))))


class BuildCosts:
    """Learns from the builds of one search; deterministic for the same sequence of builds."""

    def __init__(self, *, seed: int, threads: int) -> None:
        self._seed = seed
        self._threads = threads
        self._rows: list[NDArray[np.float32]] = []
        self._seconds: list[float] = []
        self._learnt: tuple[int, Trees] | None = None

    def note(self, features: NDArray[np.float32], seconds: float) -> None:
        """Take in a build: the features of the candidate, and the seconds until it was built or given up."""
        if features.size and seconds > 0:
            self._rows.append(features)
            self._seconds.append(seconds)

    def price(self, of_the_best: Sequence[float] = ()) -> Price | None:
        """Return the discount for candidates that take long to build; None while too few were built.

        `of_the_best` are the build times in seconds of a workload's fastest programs.  If their median is above the
        overall one, it takes its place.
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
        """Return the time limit in seconds for the next build, at most `most`."""
        return patience_s(self._seconds, most)

    def dearest_first(self, ids: Sequence[Id], rows: Mapping[Id, NDArray[np.float32]]) -> list[Id]:
        """Return the candidates in the order in which several workers finish building them soonest.

        This is longest processing time first (Graham, SIAM J. Appl. Math. 17(2), 1969).  `rows` has the features by
        candidate; candidates without features come last, in their order.
        """
        model, known = self._model(), [id for id in ids if id in rows and rows[id].size]
        if model is None or not known:
            return list(ids)
        logarithms = dict(zip(known, model.predict(np.stack([rows[id] for id in known])), strict=True))
        return sorted(ids, key=lambda id: -logarithms.get(id, -math.inf))

    def _model(self) -> Trees | None:
        """Return the model of the logarithm of the seconds; None while too few were built."""
        count = max((n for n in _LEARNT_FROM if n <= len(self._rows)), default=0)
        if count and (self._learnt is None or self._learnt[0] != count):
            features, labels = np.stack(self._rows[:count]), np.log(np.array(self._seconds[:count], np.float32))
            trees = Trees.train(features, labels, seed=self._seed, threads=self._threads, rounds=_ROUNDS, depth=_DEPTH)
            self._learnt = (count, trees)
        return None if self._learnt is None else self._learnt[1]
