"""A kernel that never changes, so that what the machine was like at each turn can be seen afterwards."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np

__all__ = ["reference_kernel"]

_SIZE = 768
_SECONDS = 0.1
_LEAST_RUNS = 5


def reference_kernel(clock: Callable[[], float] = time.perf_counter) -> Callable[[], float]:
    """A function that times a product of two matrices (768 x 768, fp32) for about 0.1 seconds.

    It answers the median of its runs in microseconds.
    """
    random = np.random.default_rng(0)
    left = random.standard_normal((_SIZE, _SIZE), np.float32)
    right = random.standard_normal((_SIZE, _SIZE), np.float32)
    product = np.empty_like(left)

    def measure() -> float:
        np.matmul(left, right, out=product)
        times: list[float] = []
        while len(times) < _LEAST_RUNS or sum(times) < _SECONDS:
            begun = clock()
            np.matmul(left, right, out=product)
            times.append(clock() - begun)
        return 1e6 * statistics.median(times)

    return measure
