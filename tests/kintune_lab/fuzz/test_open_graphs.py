"""Drawn graphs with open extents: onnxruntime runs each at all extents of its sets of inputs."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

from kintune.models.evaluation import open_session
from kintune_lab.fuzz.evaluation import Refused
from kintune_lab.fuzz.open_graphs import OpenGraphs, _points, _range
from kintune_lab.fuzz.subject import ModelPart


def _drawn(seed: int, number: int) -> tuple[OpenGraphs, ModelPart | None]:
    graphs = OpenGraphs(seed)
    graphs.draw(number)
    try:
        return graphs, graphs.part(range(len(graphs.operators)))
    except Refused:
        return graphs, None


@pytest.fixture(autouse=True)
def _quiet() -> None:
    np.seterr(all="ignore")


def test_onnxruntime_runs_most_graphs_at_all_extents_of_their_sets() -> None:
    compared = 0
    for number in range(20):
        graphs, part = _drawn(1, number)
        if part is None:
            continue
        compared += 1
        session = open_session(part.content.model)
        assert len(graphs.sets(3)) == 5
        for values in graphs.sets(3):
            found = session.run(list(part.outputs), {name: values[name] for name in part.inputs})
            assert [np.shape(each) for each in found] == [np.shape(values[name]) for name in part.outputs]
    assert compared > 12


def test_a_graph_depends_on_the_seed_and_the_number_alone() -> None:
    (one, part), (other, again) = (_drawn(1, 5) for _ in range(2))
    assert part is not None
    assert again is not None
    assert (part.shapes, part.content.model) == (again.shapes, again.content.model)
    for values, same in zip(one.sets(3), other.sets(3), strict=True):
        assert all(np.array_equal(values[name], same[name], equal_nan=True) for name in part.inputs)


def test_a_part_is_open_where_what_it_reads_is() -> None:
    """Tensors that other nodes compute have the open extents, or the part is refused."""
    parts = 0
    for number in (3, 5, 11, 15):
        graphs, whole = _drawn(1, number)
        assert whole is not None
        for at in range(len(graphs.operators)):
            with contextlib.suppress(Refused):
                assert set() < _ranges(graphs.part([at])) <= _ranges(whole)
                parts += 1
    assert parts > 10


def _ranges(part: ModelPart) -> set[str]:
    """The open extents of a part, as they are spelled."""
    return {text for each in part.shapes for text in each.partition("=")[2].split("x") if ".." in text}


@pytest.mark.parametrize("extent", [2, 3, 4, 5, 7, 16, 197])
def test_ranges_are_around_the_drawn_extent(extent: int) -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        extents = _range(rng, extent)
        assert extent in extents
        assert 2 <= extents[0] <= max(extent // 3, 2) + 1
        assert 2 * extent - 1 <= extents[-1] <= 2 * extent
        points = [point[extent] for point in _points(rng, {extent: extents})]
        assert points[:2] == [extents[0], extents[-1]]
        assert set(points) <= set(extents)
