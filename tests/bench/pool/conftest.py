from __future__ import annotations

import pytest

from kintune.bench.pool.pool import Pool
from kintune.testing.pools import synthetic_pool


@pytest.fixture
def pool() -> Pool:
    return synthetic_pool()
