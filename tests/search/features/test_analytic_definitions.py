"""The analytic features of each candidate of a population are what their definitions say."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kintune.core.candidate import Axis, Candidate, Choice, Location, Sketch, Tile
from kintune.search.access_patterns import AccessPatterns, OperandAccess
from kintune.search.draft.breed import draw
from kintune.search.features import analytic
from kintune.search.features.analytic import ANALYTIC, AnalyticFeatures
from kintune.search.features.encoding import Population
from kintune.search.features.field import fields_of
from kintune.search.features.outline import LEVELS
from kintune.search.processor import Processor

VALUES = (512, 0, 16, 64)


def product() -> tuple[AccessPatterns, list[Axis]]:
    """A matrix product with a packed weight."""
    patterns = AccessPatterns(
        block="product",
        extents=(24, 48, 40),
        reduces=(False, False, True),
        accesses=(
            OperandAccess((24, 40), ((1, 0, 0), (0, 0, 1)), 4),
            OperandAccess((40, 48), ((0, 0, 1), (0, 1, 0)), 2, weight=True),
            OperandAccess((24, 48), ((1, 0, 0), (0, 1, 0)), 4, written=True),
        ),
    )
    axes: list[Axis] = [Tile(24, 4, 64, "s0:i"), Tile(48, 4, 64, "s1:j"), Tile(40, 2, 64, "r2:k")]
    return patterns, [*axes, Choice(VALUES, (0.25,) * 4)]


def convolution() -> tuple[AccessPatterns, list[Axis]]:
    """A convolution of 3 x 3 with stride 2, with two producers."""
    patterns = AccessPatterns(
        block="convolution",
        extents=(6, 8, 32, 3, 3, 16),
        reduces=(False, False, False, True, True, True),
        accesses=(
            OperandAccess((13, 17, 16), ((2, 0, 0, 1, 0, 0), (0, 2, 0, 0, 1, 0), (0, 0, 0, 0, 0, 1)), 4),
            OperandAccess(
                (3, 3, 16, 32), (*((0, 0, 0, *row) for row in np.eye(3, dtype=int).tolist()), (0, 0, 1, 0, 0, 0)), 4
            ),
            OperandAccess((6, 8, 32), tuple((*row, 0, 0, 0) for row in np.eye(3, dtype=int).tolist()), 4, written=True),
            OperandAccess((), (), 4),
        ),
    )
    spatial = [Tile(extent, 4, 64, f"s{i}:x") for i, extent in enumerate((6, 8, 32))]
    reduced = [Tile(extent, 2, 64, f"r{i}:x") for i, extent in enumerate((3, 3, 16), 3)]
    return patterns, [Location(9), *spatial, *reduced, Location(12), Location(4)]


def row_sum() -> tuple[AccessPatterns, list[Axis]]:
    """A sum of rows, read along the axis that stays; the read is contiguous in no loop but the reduced one."""
    accesses = (OperandAccess((20, 64), ((1, 0), (0, 1)), 4), OperandAccess((20,), ((1, 0),), 4, written=True))
    return AccessPatterns("sum", (20, 64), (False, True), accesses), [Tile(20, 4, 8, "s0:i"), Tile(64, 2, 64, "r1:k")]


CASES = {"product": product(), "convolution": convolution(), "row sum": row_sum()}
MACHINES = [
    Processor(16, 32, 2, (8 << 10, 64 << 10, 1 << 20)),
    Processor(8, 16, 1, (1 << 10, 4 << 10, 16 << 10)),
    Processor(4, 16, 8, (256, 2 << 10, 8 << 10)),
]
FIXED = {"epilogue": b'["ReverseComputeAt", ["c", "i1"], [], []]', "buffer": b'["CacheWrite", ["b"], [], ["c"]]'}


class Definition:
    """The features of one candidate, by their definitions."""

    def __init__(self, patterns: AccessPatterns, axes: Sequence[Axis], candidate: Candidate, cpu: Processor) -> None:
        self.patterns, self.axes, self.cpu = patterns, axes, cpu
        pairs = list(zip(axes, candidate.decisions, strict=True))
        self.tiles = [decision for axis, decision in pairs if isinstance(axis, Tile)]
        self.unroll = next((axis.values[d[0]] for axis, d in pairs if isinstance(axis, Choice)), 0)
        self.places = [decision[0] for axis, decision in pairs if isinstance(axis, Location)]
        self.loops = range(len(patterns.extents))
        self.spatial = [i for i in self.loops if not patterns.reduces[i]]
        self.reduced = [i for i in self.loops if patterns.reduces[i]]
        self.iterations = math.prod(patterns.extents)

    def factor(self, level: int, loop: int) -> int:
        if (LEVELS[level] == "R") != self.patterns.reduces[loop]:
            return 1
        return self.tiles[loop][LEVELS[:level].count(LEVELS[level])]

    def inner(self, level: int) -> list[int]:
        """Iterations of each loop in the levels from this one on."""
        return [math.prod(self.factor(each, loop) for each in range(level, len(LEVELS))) for loop in self.loops]

    def bytes_of(self, access: OperandAccess, inner: Sequence[int], whole: bool = True) -> float:
        """What these iterations touch, in whole cache lines of 64 bytes where the layout is given."""
        reaches = [1 + sum(step * (inner[i] - 1) for i, step in enumerate(steps)) for steps in access.steps]
        size = access.width * math.prod(min(e, r) for e, r in zip(access.shape, reaches, strict=True))
        if whole and not access.weight and access.shape:
            size *= max(1.0, min(64, access.shape[-1] * access.width) / (reaches[-1] * access.width))
        return float(size)

    def fetches(self, level: int, access: OperandAccess) -> int:
        """Once for each iteration of the loops outside, but for the innermost of them that leave the operand."""
        outside = [(each, loop) for each in range(level) for loop in self.loops]
        uses = [any(steps[loop] for steps in access.steps) for loop in self.loops]
        turning = [
            position for position, (each, loop) in enumerate(outside) if uses[loop] and self.factor(each, loop) > 1
        ]
        last = max(turning, default=-1)
        return math.prod(
            self.factor(each, loop) for position, (each, loop) in enumerate(outside) if position <= last or uses[loop]
        )

    def row(self) -> list[float]:
        cpu, patterns = self.cpu, self.patterns
        log = lambda value: math.log2(max(value, 2.0**-40))  # noqa: E731
        touched = [sum(self.bytes_of(a, self.inner(level)) for a in patterns.accesses) for level in range(6)]
        moved = [
            sum(self.bytes_of(a, self.inner(level)) * self.fetches(level, a) for a in patterns.accesses)
            for level in range(6)
        ]
        fed = [
            next((moved[level] for level in range(5) if touched[level] <= 0.8 * size), moved[5]) for size in cpu.caches
        ]
        tile = self.inner(5)
        width = tile[self.spatial[-1]]
        vectors = -(-width // cpu.lanes)
        rows = math.prod(tile[i] for i in self.spatial[:-1])
        loads, held = 0.0, 0.0
        for access in patterns.accesses:
            if not access.written:
                elements = self.bytes_of(access, tile, whole=False) / access.width
                moves = [steps[self.spatial[-1]] for steps in access.steps]
                together = any(moves) and (access.weight or (moves[-1] == 1 and not any(moves[:-1])))
                taken = elements / width * vectors if together else elements
                loads += taken
                held = max(held, taken if together else 1.0)
        sums = rows * vectors
        odd = width > cpu.lanes and width & (width - 1) != 0
        lanes = (0.03 if odd else 1.0) * width / (vectors * cpu.lanes)
        chunks = 1
        for level, loop in itertools.product((0, 1), self.spatial):
            if chunks * self.factor(level, loop) > 16 * cpu.threads:
                break
            chunks *= self.factor(level, loop)
        balance = chunks / (-(-chunks // cpu.threads) * cpu.threads)
        steps = rows * math.prod(self.factor(4, i) for i in self.reduced)
        ideal = self.iterations / (2 * cpu.lanes * cpu.threads)
        spilt = max(0, sums + 2 - cpu.registers)
        compute = ideal / lanes * max(sums / 2, (loads + 2 * spilt) / 2) / (sums / 2)
        parts = [compute, *(b / (rate * cpu.threads) for b, rate in zip(fed, (32, 12, 4), strict=True))]
        cycles = (max(parts) + 0.25 * (sum(parts) - max(parts))) / balance
        levels = [
            math.prod(self.factor(level, i) for i in (self.reduced if kind == "R" else self.spatial))
            for level, kind in enumerate(LEVELS)
        ]
        factors: list[float] = []
        for loops, count, at in ((self.spatial, 4, (3, 5)), (self.reduced, 3, (4,))):
            for level in at:
                found = [log(self.factor(level, i)) for i in loops[::-1][:count]]
                factors += [*found, *[0.0] * (count - len(found))]
        sizes = [
            1 + sum(a.width * math.prod(a.shape) for a in patterns.accesses if a.weight is weight)
            for weight in (True, False)
        ]
        return [
            *(log(rows), log(loads), log(sums), lanes, float(odd), (sums + held + 1) / cpu.registers, loads / sums),
            *(log(1 + self.unroll), log(steps), float(rows <= self.unroll), float(steps <= self.unroll)),
            log(steps if steps <= self.unroll else rows if rows <= self.unroll else 1),
            *(log(chunks), balance),
            *map(log, touched[1:]),
            *(log(each / self.iterations) for each in moved[1:]),
            *(log(each / self.iterations) for each in fed),
            *map(log, levels),
            *factors,
            *[*self.places, -3.0, -3.0][:2],
            *map(math.log2, (self.iterations, *sizes, math.prod(patterns.extents[i] for i in self.reduced))),
            ideal / cycles,
        ]


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), machine=st.sampled_from(MACHINES), name=st.sampled_from([*CASES]))
def test_features_are_what_their_definitions_say(seed: int, machine: Processor, name: str) -> None:
    patterns, axes = CASES[name]
    (field,) = fields_of([Sketch("w", "plain", b"", tuple(axes))], patterns, machine)
    population = draw(field.encoding, 6, np.random.default_rng(seed))
    features = field.features(population)[:, :ANALYTIC]
    for row, candidate in zip(features, field.encoding.candidates(population), strict=True):
        expected = Definition(patterns, axes, candidate, machine).row()
        fixed = [*expected[:-5], -1.0, 0.0, *expected[-5:]]  # no epilogue, and no buffer, in this sketch
        np.testing.assert_allclose(row, fixed, rtol=2e-6, atol=1e-6)
    assert AnalyticFeatures.ESTIMATE == ANALYTIC - 1


@pytest.mark.parametrize("steps", [(), ("epilogue",), ("buffer",), ("epilogue", "buffer")])
def test_the_steps_of_a_sketch_are_features_of_its_candidates(steps: Sequence[str]) -> None:
    patterns, axes = CASES["product"]
    order = b'["Reorder", ["i0", "j0", "i1", "j1", "k0", "i2", "j2", "k1", "i3", "j3"], [], []]'
    trace = b'{"insts": [' + b", ".join([order, *(FIXED[step] for step in steps)]) + b"]}"
    plain = Sketch("w", "plain", b"", tuple(axes))
    (field,) = fields_of([plain, msgspec.structs.replace(plain, digest="other", trace=trace)], patterns, MACHINES[0])
    population = draw(field.encoding, 4, np.random.default_rng(0))
    population = Population(np.array([0, 1, 0, 1]), population.rows)
    epilogue = 1.0 if "epilogue" in steps else -1.0
    found = field.features(population)[:, ANALYTIC - 7 : ANALYTIC - 5].tolist()
    assert found == [[-1.0, 0.0], [epilogue, float("buffer" in steps)]] * 2


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), name=st.sampled_from([*CASES]))
def test_the_limit_of_a_key_is_the_least_that_unrolls_the_same(seed: int, name: str) -> None:
    patterns, axes = CASES[name]
    (field,) = fields_of([Sketch("w", "plain", b"", tuple(axes))], patterns, MACHINES[0])
    population = draw(field.encoding, 6, np.random.default_rng(seed))
    limits = field._analytic.limits(population)
    if not any(isinstance(axis, Choice) for axis in axes):
        assert limits is None
        return
    assert limits is not None
    for limit, candidate in zip(limits, field.encoding.candidates(population), strict=True):
        of = Definition(patterns, axes, candidate, MACHINES[0])
        rows = math.prod(of.inner(5)[i] for i in of.spatial[:-1])
        steps = rows * math.prod(of.factor(4, i) for i in of.reduced)
        alike = [v for v in VALUES if (rows <= v, steps <= v) == (rows <= of.unroll, steps <= of.unroll)]
        assert VALUES[limit] == min(alike)


def test_an_access_is_contiguous_along_a_loop_that_moves_its_last_index_alone_by_one() -> None:
    """Or that moves a weight at all, since that can be laid out anew."""
    for steps, weight, expected in [
        ((0, 0, 1), False, True),
        ((0, 1, 1), False, False),
        ((1, 0, 1), False, False),
        ((0, 0, 2), False, False),
        ((0, 1, 0), False, False),
        ((0, 1, 0), True, True),
        ((0, 0, 0), True, False),
    ]:
        access = OperandAccess((4, 4, 4), tuple((step,) for step in steps), 4, weight=weight)
        assert analytic._contiguous(access, 0) is expected
