from __future__ import annotations

from kintune.core.execution_plan import OpenExtent


def test_extents_are_counted_in_steps_and_back() -> None:
    dimension = OpenExtent("n", 0, 1, least=11, greatest=35, step=8)
    assert dimension.extents == range(11, 36, 8)
    assert [dimension.steps(extent) for extent in (11, 19, 27, 35)] == [1, 2, 3, 4]
    assert [dimension.extent(steps) for steps in (1, 2, 3, 4)] == [11, 19, 27, 35]
