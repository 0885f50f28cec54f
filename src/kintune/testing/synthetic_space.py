"""A search space without a compiler: the times of its programs are formulas that a cost model can learn."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from kintune.core.candidate import UNTUNED, Axis, Candidate, Choice, Location, Sketch, Tile, digest_of
from kintune.core.outcome import Outcome, Status
from kintune.search.access_patterns import AccessPatterns, OperandAccess
from kintune.search.family import Subject
from kintune.search.features.field import Field, fields_of
from kintune.search.processor import Processor
from kintune.search.rules import rule_candidates
from kintune.search.space import Draft
from kintune.search.training_rows import STORES, of_stores

__all__ = ["MatMul", "SyntheticSpace", "tiny_product"]

_UNROLL = Choice((0, 16, 64, 512), (0.25, 0.25, 0.25, 0.25))
_LOCATIONS = 12
_LANES = 16
_REGISTERS = 28
_CORES = 8
_LARGEST_TILE = 1024  # elements of a register tile; candidates with more are invalid
_LARGEST_UNROLL = 2048  # programs that are unrolled further exceed the time limit of builds
_PEAK = 100_000.0  # FLOPs per microsecond


class MatMul(msgspec.Struct, frozen=True):
    """A workload of the synthetic space: a matrix product of these extents that its network has `weight` times."""

    name: str
    rows: int
    columns: int
    depth: int
    weight: int = 1
    operator: str = "dense"

    @property
    def flops(self) -> float:
        """FLOPs of one run."""
        return 2.0 * self.rows * self.columns * self.depth

    @property
    def subject(self) -> Subject:
        """The workload as the search knows it; its name is its digest."""
        return Subject(self.name, self.weight, self.flops, self.operator, self.operator)


def tiny_product(name: str) -> MatMul:
    """Return a workload with so few programs that all of them can be measured."""
    return MatMul(name, 1, 2, 1)


class SyntheticSpace:
    """Implements `kintune.search.space.SearchSpace`, with a formula in place of measurements.

    There are three sketches for each workload: two with equal axes, the second of which is slower, and one that splits
    the reduction.  Candidates with register tiles beyond a limit are invalid; a compute location that the loops do not
    have becomes the root; programs that are unrolled too far fail when built.
    """

    def __init__(self, products: Iterable[MatMul], machine: Processor | None = None) -> None:
        self.products = {product.name: product for product in products}
        self._machine = machine or Processor(_LANES, _REGISTERS + 4, _CORES)
        self._sketches = {name: _sketches(product) for name, product in self.products.items()}
        self._fields = {
            name: fields_of(self._sketches[name], _access_patterns(product), self._machine)
            for name, product in self.products.items()
        }
        self._by_digest = {sketch.digest: sketch for sketches in self._sketches.values() for sketch in sketches}

    peak_gflops = _PEAK / 1e3
    """The GFLOP/s that no program exceeds."""

    def subjects(self) -> list[Subject]:
        """Return all workloads as the search knows them."""
        return [product.subject for product in self.products.values()]

    def sketches(self, workload: str) -> Sequence[Sketch]:
        """Return the sketches of a workload."""
        return self._sketches[workload]

    def fields(self, workload: str) -> Sequence[Field]:
        """Return the fields of a workload: the sketches that tile the product at several levels."""
        return self._fields[workload]

    def rules(self, workload: str, limit: int) -> Sequence[Candidate]:
        """Return at most `limit` candidates of the rule, which is that of real workloads."""
        return rule_candidates(self._sketches[workload], self._machine, limit)

    def verify(self, candidates: Sequence[Candidate]) -> Sequence[Draft | None]:
        """Return each candidate with its features, perhaps with another compute location, or None if it is invalid."""
        replayed = [self._replayed(candidate) for candidate in candidates]
        rows: dict[Candidate, NDArray[np.float32]] = {}
        for workload in dict.fromkeys(c.workload for c in replayed if c is not None):
            for field in self._fields[workload]:
                own = [c for c in dict.fromkeys(replayed) if c is not None and c in field.encoding]
                rows.update(zip(own, field.features(field.encoding.encode(own)), strict=True) if own else ())
        return [None if c is None else Draft(c, rows[c] if c in rows else self._features(c)) for c in replayed]

    def measure(self, candidate: Candidate) -> Outcome:
        """Return the outcome of building and timing the candidate, always the same one."""
        product = self.products[candidate.workload]
        if candidate.sketch == UNTUNED:
            return Outcome(Status.OK, (20 * product.flops / _PEAK,))
        if self._unrolled(candidate) > _LARGEST_UNROLL:
            return Outcome(Status.BUILD_TIMED_OUT, cause="timed out: unrolled too far")
        return Outcome(Status.OK, (self._time_us(candidate),))

    def _replayed(self, candidate: Candidate) -> Candidate | None:
        """Return the candidate with a compute location that exists; None if it is invalid."""
        sketch = self._by_digest.get(candidate.sketch)
        if sketch is None or len(sketch.axes) != len(candidate.decisions):
            return None
        tile = _inner(sketch, candidate)
        if math.prod(tile) > _LARGEST_TILE:
            return None
        decisions = tuple(
            (-1,) if isinstance(axis, Location) and decision[0] >= max(2, 2 * len(tile)) else decision
            for axis, decision in zip(sketch.axes, candidate.decisions, strict=True)
        )
        return Candidate(candidate.workload, candidate.sketch, decisions)

    def _features(self, candidate: Candidate) -> NDArray[np.float32]:
        """Return features of a candidate without analytic ones: what its time depends on, and its workload's size."""
        sketch = self._by_digest[candidate.sketch]
        product = self.products[candidate.workload]
        inner = _inner(sketch, candidate)
        row = [
            inner[-1] if inner else 1,
            math.prod(inner[:-1]),
            _chunks(sketch, candidate),
            self._unrolled(candidate),
            candidate.decisions[-1][0],
            self._sketches[candidate.workload].index(sketch),
            product.flops,
            product.columns,
        ]
        features: NDArray[np.float32] = of_stores(np.array([row + [0.0] * (STORES - len(row))], dtype=np.float32))[0]
        return features

    def _unrolled(self, candidate: Candidate) -> float:
        sketch = self._by_digest[candidate.sketch]
        limit = _UNROLL.values[candidate.decisions[-2][0]]
        tile = math.prod(_inner(sketch, candidate))
        return tile * limit / 64

    def _time_us(self, candidate: Candidate) -> float:
        """Return the time in microseconds: that of the peak, times factors for idle lanes, idle cores and the like."""
        sketch = self._by_digest[candidate.sketch]
        inner = _inner(sketch, candidate)
        columns = inner[-1] if inner else 1
        vectors = math.ceil(columns / _LANES) * math.prod(inner[:-1])
        lanes = min(1.0, columns / (math.ceil(columns / _LANES) * _LANES))
        registers = min(vectors, _REGISTERS) / _REGISTERS if vectors <= _REGISTERS else _REGISTERS / vectors
        chunks = _chunks(sketch, candidate)
        cores = chunks / (math.ceil(chunks / _CORES) * _CORES)
        loops = 1.0 + 0.3 * abs(math.log2((1 + self._unrolled(candidate)) / 65))
        sketched = (1.0, 1.4, 2.0)[self._sketches[candidate.workload].index(sketch)]
        place = 1.0 if candidate.decisions[-1][0] >= 0 else 1.2
        slow = loops * sketched * place / (lanes * (0.2 + 0.8 * registers) * cores)
        return 1.0 + self.products[candidate.workload].flops / _PEAK * slow


def _access_patterns(product: MatMul) -> AccessPatterns:
    """Return the access patterns: two matrices are read, the second of which is a weight, and one is written."""
    rows, columns, depth = product.rows, product.columns, product.depth
    return AccessPatterns(
        block="product",
        extents=(rows, columns, depth),
        reduces=(False, False, True),
        accesses=(
            OperandAccess((rows, depth), ((1, 0, 0), (0, 0, 1)), 4),
            OperandAccess((depth, columns), ((0, 0, 1), (0, 1, 0)), 4, weight=True),
            OperandAccess((rows, columns), ((1, 0, 0), (0, 1, 0)), 4, written=True),
        ),
    )


def _sketches(product: MatMul) -> tuple[Sketch, ...]:
    spatial = (Tile(product.rows, 4, 64, "s0:i"), Tile(product.columns, 4, 64, "s1:j"))
    reduction = Tile(product.depth, 2, 64, "r2:k")
    rest: tuple[Axis, ...] = (_UNROLL, Location(_LOCATIONS))
    traces: tuple[tuple[bytes, tuple[Axis, ...]], ...] = (
        (_trace("ReverseComputeAt"), (*spatial, reduction, *rest)),
        (_trace(), (*spatial, reduction, *rest)),
        (_trace("RFactor"), (reduction, *rest)),
    )
    return tuple(Sketch(product.name, digest_of(product.name.encode(), trace), trace, axes) for trace, axes in traces)


def _trace(*steps: str) -> bytes:
    """Return a trace with the instructions that the search reads; each step refers to a loop of the second level."""
    order = ["i0", "j0", "i1", "j1", "k0", "i2", "j2", "k1", "i3", "j3"]
    instructions = [["Reorder", order, [], []], *([step, ["b", "j1"], [], []] for step in steps)]
    return json.dumps({"insts": instructions}).encode()


def _inner(sketch: Sketch, candidate: Candidate) -> list[int]:
    """Return the innermost factors of the spatial tiles."""
    pairs = zip(sketch.axes, candidate.decisions, strict=True)
    return [decision[-1] for axis, decision in pairs if isinstance(axis, Tile) and axis.spatial]


def _chunks(sketch: Sketch, candidate: Candidate) -> int:
    """Return the number of parallel chunks: the iterations of the two outermost spatial levels."""
    pairs = zip(sketch.axes, candidate.decisions, strict=True)
    return math.prod(decision[0] * decision[1] for axis, decision in pairs if isinstance(axis, Tile) and axis.spatial)
