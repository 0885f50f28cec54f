from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.core.candidate import Choice, Sketch, Tile, fits
from kintune.search.bounds import TileBound, admits, bounds_of, divisors, repair
from kintune.search.evolve import draw, mutate
from kintune.search.gpu_rules import gpu_rule_candidates


def threaded(extents: tuple[int, ...], low: int = 32, high: int = 256) -> Sketch:
    """A sketch as MetaSchedule makes them for GPUs: blocks, virtual threads, threads, and two levels of their own."""
    instructions: list[Any] = []
    levels: list[list[str]] = [[], [], []]
    for i in range(len(extents)):
        factors, loops = [f"v{i}{part}" for part in range(5)], [f"l{i}{part}" for part in range(5)]
        instructions.append(["SamplePerfectTile", [f"loop{i}"], [5, 64], factors])
        instructions.append(["Split", [f"loop{i}", *factors], [1, 0], loops])
        for level in range(3):
            levels[level].append(loops[level])
    for loops, thread in zip(levels, ("blockIdx.x", "vthread.x", "threadIdx.x"), strict=True):
        instructions.append(["Fuse", loops, [1], [thread]])
        instructions.append(["Bind", [thread], [thread], []])
    for key, value in (("low", low), ("high", high)):
        instructions.append(["Annotate", ["block", value], [f"meta_schedule.thread_extent_{key}_inclusive"], []])
    instructions.append(["SampleCategorical", [], [[1, 2, 3, 4], [0.25] * 4], ["u"]])
    sampled = [i for i, each in enumerate(instructions) if str(each[0]).startswith("Sample")]
    tiles = [Tile(extent, 5, 64, f"s{i}:x") for i, extent in enumerate(extents)]
    trace = json.dumps({"insts": instructions, "sampled": sampled}).encode()
    return Sketch("w", "threaded", trace, (*tiles, Choice((1, 2, 3, 4), (0.25,) * 4)))


extents = st.lists(st.integers(1, 2048), min_size=1, max_size=4).map(tuple)

seeds = st.integers(0, 2**32 - 1)


def test_they_are_read_from_the_trace() -> None:
    virtual, threads = bounds_of(threaded((64, 8)))
    assert virtual == TileBound(((0, 1), (1, 1)), 1, 8)
    assert threads == TileBound(((0, 2), (1, 2)), 32, 256)
    assert bounds_of(threaded((4, 2)))[1].least == 8  # there are no more iterations


def test_what_is_not_drawn_is_not_bounded() -> None:
    """A tile that the trace has decided, and what is drawn but no tile; loops of these may be bound to threads."""
    content = json.loads(threaded((64, 8)).trace)
    decided = {**content, "sampled": content["sampled"][1:]}
    assert bounds_of(Sketch("w", "decided", json.dumps(decided).encode(), (Tile(8, 5), Choice((1,), (1.0,))))) == ()
    (tile,) = [i for i, each in enumerate(content["insts"]) if each[3][:1] == ["v10"]]
    content["insts"][tile][0] = "SampleCategorical"
    assert bounds_of(Sketch("w", "other", json.dumps(content).encode(), threaded((64, 8)).axes)) == ()


@pytest.mark.parametrize("trace", [b"", b"trace", b"[]", b"{}", json.dumps({"insts": [], "sampled": []}).encode()])
def test_other_sketches_have_none(trace: bytes) -> None:
    assert bounds_of(Sketch("w", "other", trace, (Tile(64, 4),))) == ()


@given(extents, seeds)
def test_what_is_drawn_or_mutated_has_not_too_many_threads(extents: tuple[int, ...], seed: int) -> None:
    sketch = threaded(extents)
    rng = np.random.default_rng(seed)
    child = draw(sketch, rng)
    for _ in range(5):
        assert fits(sketch.axes, child.decisions)
        for bound in bounds_of(sketch):
            assert bound.product(child.decisions) <= bound.most
        child = mutate(child, [sketch], rng)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=4), seeds)
def test_where_extents_are_powers_of_two_there_are_enough_of_them(powers: list[int], seed: int) -> None:
    sketch = threaded(tuple(1 << power for power in powers))
    assert admits(sketch, draw(sketch, np.random.default_rng(seed)).decisions)


@given(extents, seeds)
def test_a_repair_leaves_alone_what_keeps_the_bounds(extents: tuple[int, ...], seed: int) -> None:
    sketch = threaded(extents)
    rng = np.random.default_rng(seed)
    decisions = draw(sketch, rng).decisions
    if admits(sketch, decisions):
        assert repair(sketch, decisions, rng) == decisions


@pytest.mark.slow
@given(extents)
def test_the_rule_keeps_them_and_repeats_itself(extents: tuple[int, ...]) -> None:
    sketch = threaded(extents)
    found = gpu_rule_candidates([sketch], 24)
    assert found == gpu_rule_candidates([sketch], 24)
    assert found[:5] == gpu_rule_candidates([sketch], 5)
    assert len(set(found)) == len(found)
    for candidate in found:
        assert fits(sketch.axes, candidate.decisions)
        assert admits(sketch, candidate.decisions)


def test_the_rule_begins_with_many_threads_and_a_register_tile_each() -> None:
    sketch = threaded((1024, 1024), high=1024)
    first = gpu_rule_candidates([sketch], 1)[0].decisions
    assert math.prod(part[2] for part in first[:2]) == 256
    assert [part[4] for part in first[:2]] == [4, 4]


def test_the_rule_begins_with_small_tiles_where_outputs_are_few() -> None:
    sketch = threaded((64, 128), high=1024)
    first = gpu_rule_candidates([sketch], 1)[0].decisions
    assert math.prod(part[0] for part in first[:2]) >= 64  # blocks
    assert math.prod(part[4] for part in first[:2]) <= 2


@given(st.integers(1, 5000))
def test_divisors_are_all_there_are(n: int) -> None:
    assert divisors(n) == tuple(d for d in range(1, n + 1) if n % d == 0)
