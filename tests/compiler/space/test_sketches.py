from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from kintune.core.candidate import Tile
from kintune.search.evolve import draw

if TYPE_CHECKING:
    from tests.support.workloads import TinyConv

pytestmark = pytest.mark.tvm


def test_traces_hold_no_decisions(tiny_conv: TinyConv) -> None:
    for sketch in tiny_conv.sketches:
        trace = json.loads(sketch.trace)
        assert set(trace) == {"insts", "sampled"}
        sampling = [i for i, instruction in enumerate(trace["insts"]) if instruction[0].startswith("Sample")]
        assert trace["sampled"] == sampling
        assert len(sampling) == len(sketch.axes)
        assert b"EnterPostproc" not in sketch.trace


def test_axes_cover_the_loops(tiny_conv: TinyConv) -> None:
    tiled = next(s for s in tiny_conv.sketches if any(isinstance(a, Tile) and a.parts > 2 for a in s.axes))
    tiles = [axis for axis in tiled.axes if isinstance(axis, Tile)]
    assert sorted(axis.extent for axis in tiles) == [1, 5, 5, 7, 7, 12, 16]
    assert math.prod(axis.extent for axis in tiles) == 7 * 7 * 16 * 5 * 5 * 12
    assert [axis.loop[0] for axis in tiles] == ["s"] * 4 + ["r"] * 3
    assert all((axis.parts > 2) == (axis.loop[0] == "s") for axis in tiles)


def test_sketches_are_distinct_and_the_same_each_time(tiny_conv: TinyConv) -> None:
    from kintune.compiler.space.sketches import generate_sketches

    assert generate_sketches("conv", tiny_conv.module, tiny_conv.target) == tiny_conv.sketches
    assert len({sketch.digest for sketch in tiny_conv.sketches}) == len(tiny_conv.sketches)


def test_another_workload_has_other_digests(tiny_conv: TinyConv) -> None:
    from kintune.compiler.space.sketches import generate_sketches

    others = generate_sketches("other", tiny_conv.module, tiny_conv.target)
    assert not {sketch.digest for sketch in others} & {sketch.digest for sketch in tiny_conv.sketches}


def test_a_schedule_is_taken_apart_into_the_sketch_and_decisions_it_came_from(tiny_conv: TinyConv) -> None:
    from kintune.compiler.space.replay import Replayer
    from kintune.compiler.space.sketches import parse_trace

    replay = Replayer(tiny_conv.module, tiny_conv.target)
    rng = np.random.default_rng(0)
    for sketch in tiny_conv.sketches:
        taken = replay(sketch, draw(sketch, rng))
        found, decisions = parse_trace("conv", tiny_conv.module, taken.schedule.trace)
        assert found == sketch
        assert decisions == taken.candidate.decisions
