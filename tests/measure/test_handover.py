from __future__ import annotations

from collections.abc import Callable

import pytest

pytestmark = pytest.mark.tvm


def told(*seconds: float) -> Callable[[], float]:
    left = list(seconds)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


def test_the_least_of_some_looks_counts() -> None:
    from kintune.measure.core_locality import CoreLatency

    assert CoreLatency(told(9e-6, 2e-6), told(50e-6, 9e-6, 6e-6)).ratio() == pytest.approx(3.0)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_handing_on_costs_something(threads: int) -> None:
    from kintune.measure.core_locality import core_latency

    ratio = core_latency(threads, 1 << 18).ratio()
    assert 0 < ratio < float("inf")  # how much depends on what else runs
