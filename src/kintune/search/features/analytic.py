"""Analytic features: features of programs computed from their decisions alone, for thousands of candidates at once.

For every tiling level: the data that the inner loops touch, and how often it is fetched again, as in the cache models
of Wolf and Lam, "A Data Locality Optimizing Algorithm" (PLDI 1991).  For the register tile: what it holds and loads,
after Goto and van de Geijn (ACM TOMS 2008).  Also the number of parallel chunks and the unrolling.  From these a rough
roofline (Williams et al., CACM 2009) estimates the cycles of a run.  The estimate ranks candidates before anything is
measured, and is one feature among others afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from kintune.core.candidate import Choice, Location
from kintune.search.access_patterns import AccessPatterns, OperandAccess
from kintune.search.features.encoding import Encoding, Population
from kintune.search.features.outline import LEVELS, Outline
from kintune.search.processor import Processor

__all__ = ["ANALYTIC", "AnalyticFeatures"]

_Column: TypeAlias = NDArray[np.float64]

ANALYTIC = 53
"""Number of analytic features.  A change of their meaning needs a new `kintune.core.version.FEATURES`."""

_LINE = 64  # bytes of a cache line
_FILL = 0.8  # share of a cache that a working set may take
_BYTES_PER_CYCLE = (32.0, 12.0, 4.0)  # of one core from the second cache, the third, and memory
_FMA_PER_CYCLE = 2.0
_LOADS_PER_CYCLE = 2.0
_NOT_HIDDEN = 0.25  # share of the other costs that is not hidden behind the bottleneck
_SCALAR = 0.03  # share of the speed where the compiler scalarises a width that is no power of two
_CHUNKS = 16  # parallel chunks for each thread, at most, as in the sketch rules
_SPATIAL, _REDUCED = 4, 3  # innermost loops whose factors are features themselves
_PLACES = 2  # compute locations that are features


class AnalyticFeatures:
    """Computes the analytic features of the candidates of one encoding."""

    ESTIMATE = ANALYTIC - 1
    """Index of the feature that estimates the ideal cycles over those of the candidate."""

    def __init__(
        self, encoding: Encoding, patterns: AccessPatterns, processor: Processor, outlines: Sequence[Outline]
    ) -> None:
        """`outlines` has one entry for each sketch of the encoding."""
        self._encoding = encoding
        self._patterns = patterns
        self._processor = processor
        self._outlines = outlines
        loops = range(len(patterns.extents))
        self._spatial = [i for i in loops if not patterns.reduces[i]]
        self._reduced = [i for i in loops if patterns.reduces[i]]
        self._vector = self._spatial[-1]
        self._iterations = float(np.prod([float(e) for e in patterns.extents]))

    def __call__(self, population: Population) -> NDArray[np.float32]:
        """Return the features, shape (n, `ANALYTIC`), float32."""
        tiling = _Tiling(self._encoding, self._outlines[0].tiles, self._patterns, population)
        footprints = [[_footprint(a, inner) for a in self._patterns.accesses] for inner in tiling.inner]
        traffic = [
            [
                footprint * tiling.fetches(level, access)
                for access, footprint in zip(self._patterns.accesses, footprints[level], strict=True)
            ]
            for level in range(len(LEVELS))
        ]
        touched = [np.sum(each, axis=0) for each in footprints]
        moved = [np.sum(each, axis=0) for each in traffic]
        fed = [_fed_from(touched, moved, _FILL * size) for size in self._processor.caches]
        register = list(self._register_tile(tiling))
        rows, loads, accumulators, lanes = register[0], register[1], register[2], register[3]
        chunks, balance = self._chunks(tiling)
        estimate = self._estimate(loads, accumulators, lanes, fed, balance)
        columns: list[_Column] = [
            *map(np.log2, (rows, loads, accumulators)),
            lanes,
            *register[4:],
            *self._unrolling(tiling, rows),
            np.log2(chunks),
            balance,
            *(np.log2(each) for each in touched[1:]),
            *(np.log2(each / self._iterations) for each in moved[1:]),
            *(np.log2(each / self._iterations) for each in fed),
            *self._levels(tiling),
            *self._factors(tiling),
            *self._places(population),
            *self._fixed(population),
            estimate,
        ]
        count = len(population)
        return np.stack([np.broadcast_to(column, (count,)) for column in columns], axis=1).astype(np.float32)

    def limits(self, population: Population) -> NDArray[np.int64] | None:
        """Return for each candidate the index of the least unroll limit with the same effect; None without limits.

        The effect of a limit is whether it allows to unroll the rows of the register tile, and a reduction step.
        """
        number = next((i for i, axis in enumerate(self._encoding.axes) if isinstance(axis, Choice)), None)
        if number is None:
            return None
        axis = self._encoding.axes[number]
        assert isinstance(axis, Choice)
        tiling = _Tiling(self._encoding, self._outlines[0].tiles, self._patterns, population)
        rows = next(self._register_tile(tiling))
        values = np.asarray(axis.values, dtype=np.float64)
        within = (
            np.stack([rows <= limit for limit in values]),
            np.stack([self._steps(tiling, rows) <= v for v in values]),
        )
        chosen = population.rows[:, self._encoding.columns[number].start]
        least: NDArray[np.int64] = chosen.copy()
        for choice in reversed(np.argsort(values, kind="stable")):
            same = np.logical_and.reduce([w[choice] == w[chosen, np.arange(len(population))] for w in within])
            least = np.where(same, choice, least)
        return least

    def _steps(self, tiling: _Tiling, rows: _Column) -> _Column:
        """Return the size of a step of the innermost reduction level, in rows of the register tile."""
        steps: _Column = rows * np.prod([tiling.factor(4, i) for i in self._reduced], axis=0)
        return steps

    def _register_tile(self, tiling: _Tiling) -> Iterator[_Column]:
        """Yield features of a reduction step: rows, loads and accumulators (in vectors), share of used lanes, and more.

        A row of several vectors is vectorised only if its width is a power of two.
        """
        inner, lanes = tiling.inner[-1], float(self._processor.lanes)
        width = inner[self._vector]
        vectors = np.ceil(width / lanes)
        rows = (
            np.prod([inner[i] for i in self._spatial[:-1]], axis=0) if len(self._spatial) > 1 else np.ones_like(width)
        )
        accumulators = rows * vectors
        loads, held = np.zeros_like(width), np.zeros_like(width)
        for access in self._patterns.accesses:
            if not access.written:
                elements = _footprint(access, inner, whole=False) / access.width
                taken = elements / width * vectors if _contiguous(access, self._vector) else elements
                loads = loads + taken
                held = np.maximum(held, taken if _contiguous(access, self._vector) else 1.0)
        odd = (width > lanes) & (np.exp2(np.floor(np.log2(width))) != width)
        yield rows
        yield loads
        yield accumulators
        yield np.where(odd, _SCALAR, 1.0) * width / (vectors * lanes)
        yield odd.astype(np.float64)
        yield (accumulators + held + 1) / self._processor.registers
        yield loads / accumulators

    def _chunks(self, tiling: _Tiling) -> tuple[_Column, _Column]:
        """Return the number of parallel chunks, and the balance of the threads (1.0 if all have equally many)."""
        limit = _CHUNKS * self._processor.threads
        chunks = np.ones(tiling.count)
        going = np.ones(tiling.count, dtype=bool)
        for level in (0, 1):
            for i in self._spatial:
                more = chunks * tiling.factor(level, i)
                going &= more <= limit
                chunks = np.where(going, more, chunks)
        threads = float(self._processor.threads)
        return chunks, chunks / (np.ceil(chunks / threads) * threads)

    def _unrolling(self, tiling: _Tiling, rows: _Column) -> Iterator[_Column]:
        """Yield the limit of unrolling, and which of the innermost loops are within it."""
        limit = tiling.choice()
        steps = self._steps(tiling, rows)
        yield np.log2(1 + limit)
        yield np.log2(steps)
        yield (rows <= limit).astype(np.float64)
        yield (steps <= limit).astype(np.float64)
        yield np.log2(np.where(steps <= limit, steps, np.where(rows <= limit, rows, 1.0)))

    def _estimate(
        self, loads: _Column, accumulators: _Column, lanes: _Column, fed: Sequence[_Column], balance: _Column
    ) -> _Column:
        """Return the ideal cycles of a run over the estimated ones; 1.0 for a program at the peak of all cores."""
        threads = float(self._processor.threads)
        ideal = self._iterations / (_FMA_PER_CYCLE * self._processor.lanes * threads)
        spilt = np.maximum(0.0, accumulators + 2 - self._processor.registers)
        issue = np.maximum(accumulators / _FMA_PER_CYCLE, (loads + 2 * spilt) / _LOADS_PER_CYCLE)
        compute = ideal / lanes * issue / (accumulators / _FMA_PER_CYCLE)
        parts = [compute, *(b / (rate * threads) for b, rate in zip(fed, _BYTES_PER_CYCLE, strict=True))]
        slowest = np.max(parts, axis=0)
        cycles = (slowest + _NOT_HIDDEN * (np.sum(parts, axis=0) - slowest)) / balance
        share: _Column = ideal / cycles
        return share

    def _levels(self, tiling: _Tiling) -> Iterator[_Column]:
        """Yield the number of iterations of each level."""
        for level, kind in enumerate(LEVELS):
            loops = self._reduced if kind == "R" else self._spatial
            yield np.log2(np.prod([tiling.factor(level, i) for i in loops], axis=0))

    def _factors(self, tiling: _Tiling) -> Iterator[_Column]:
        """Yield the inner factors of the innermost loops, innermost first; 1 if there are fewer loops."""
        nothing = np.zeros(tiling.count)
        for loops, count, levels in ((self._spatial, _SPATIAL, (3, 5)), (self._reduced, _REDUCED, (4,))):
            last = [*reversed(loops)][:count]
            for level in levels:
                yield from (np.log2(tiling.factor(level, i)) for i in last)
                yield from (nothing for _ in range(count - len(last)))

    def _places(self, population: Population) -> Iterator[_Column]:
        """Yield where producers are computed; -3 if there are fewer of them."""
        numbers = [i for i, axis in enumerate(self._encoding.axes) if isinstance(axis, Location)][:_PLACES]
        for number in numbers:
            yield population.rows[:, self._encoding.columns[number].start].astype(np.float64)
        for _ in range(_PLACES - len(numbers)):
            yield np.full(len(population), -3.0)

    def _fixed(self, population: Population) -> Iterator[_Column]:
        """Yield the features that depend on the sketch and the workload only."""
        yield np.array([float(outline.epilogue) for outline in self._outlines])[population.sketch]
        yield np.array([float(outline.buffered) for outline in self._outlines])[population.sketch]
        yield np.array([np.log2(self._iterations)])
        sizes = {True: 1.0, False: 1.0}
        for access in self._patterns.accesses:
            sizes[access.weight] += float(np.prod(access.shape, dtype=np.float64)) * access.width
        yield np.array([np.log2(sizes[True])])
        yield np.array([np.log2(sizes[False])])
        yield np.array([np.log2(float(np.prod([float(self._patterns.extents[i]) for i in self._reduced])))])


class _Tiling:
    """The tile factors of a population by level and loop."""

    def __init__(
        self, encoding: Encoding, tiles: Sequence[int], patterns: AccessPatterns, population: Population
    ) -> None:
        self.count = len(population)
        self._encoding = encoding
        self._rows = population.rows
        self._reduces = patterns.reduces
        self._columns = [population.rows[:, encoding.columns[number]].astype(np.float64).T for number in tiles]
        whole = [np.full(len(population), float(extent)) for extent in patterns.extents]
        self.inner: list[list[_Column]] = [whole]
        """`inner[level][loop]`: iterations of the loop that lie inside the levels above `level`; the last is 5."""
        for level in range(len(LEVELS) - 1):
            outer = self.inner[-1]
            self.inner.append([outer[i] / self.factor(level, i) for i in range(len(whole))])

    def factor(self, level: int, loop: int) -> _Column:
        """Return the iterations of the loop at a level; 1 if the level is of the other kind."""
        kind = LEVELS[level]
        if (kind == "R") != self._reduces[loop]:
            return np.ones(self.count)
        part: _Column = self._columns[loop][LEVELS[:level].count(kind)]
        return part

    def fetches(self, level: int, access: OperandAccess) -> _Column:
        """Return how often the part of an operand that the loops inside the levels above `level` touch is fetched.

        It is fetched once in each iteration of the outer loops, except for the innermost of these that do not move the
        operand.
        """
        used = [any(steps[i] for steps in access.steps) for i in range(len(self._columns))]
        times: _Column = np.ones(self.count)
        staying = np.ones(self.count, dtype=bool)
        for outer in reversed(range(level)):
            for loop in reversed(range(len(self._columns))):
                factor = self.factor(outer, loop)
                if used[loop]:
                    staying &= factor == 1
                    times *= factor
                else:
                    times *= np.where(staying, 1.0, factor)
        return times

    def choice(self) -> _Column:
        """Return the value chosen on the first axis that is a choice; 0 without one."""
        for number, axis in enumerate(self._encoding.axes):
            if isinstance(axis, Choice):
                values = np.asarray(axis.values, dtype=np.float64)
                chosen: _Column = values[self._rows[:, self._encoding.columns[number].start]]
                return chosen
        return np.zeros(self.count)


def _footprint(access: OperandAccess, inner: Sequence[_Column], *, whole: bool = True) -> _Column:
    """Return the bytes of an operand that loops of these extents touch; with `whole`, in whole cache lines."""
    size = np.full_like(inner[0], float(access.width))
    for extent, steps in zip(access.shape, access.steps, strict=True):
        reach = 1 + np.sum([step * (inner[i] - 1) for i, step in enumerate(steps) if step], axis=0)
        size = size * np.minimum(float(extent), reach)
    if whole and not access.weight and access.shape:
        run = 1 + np.sum([step * (inner[i] - 1) for i, step in enumerate(access.steps[-1]) if step], axis=0)
        size = size * np.maximum(1.0, min(_LINE, access.shape[-1] * access.width) / (run * access.width))
    return size


def _contiguous(access: OperandAccess, loop: int) -> bool:
    """Return whether consecutive iterations of the loop touch consecutive elements, or can by a choice of layout."""
    moves = [steps[loop] for steps in access.steps]
    return any(moves) and (access.weight or (moves[-1] == 1 and not any(moves[:-1])))


def _fed_from(touched: Sequence[_Column], moved: Sequence[_Column], size: float) -> _Column:
    """Return the bytes moved into a cache of `size` bytes: those of the outermost level that fits."""
    fed = moved[-1]
    for level in reversed(range(len(moved) - 1)):
        fed = np.where(touched[level] <= size, moved[level], fed)
    return fed
