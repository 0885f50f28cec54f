from __future__ import annotations

import pytest

from kintune_lab.pools.pool import Pool
from tests.support.synthetic_pool import synthetic_pool


@pytest.fixture
def pool() -> Pool:
    return synthetic_pool()
