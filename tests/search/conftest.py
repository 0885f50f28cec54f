import pytest

from kintune.testing.synthetic_space import MatMul, SyntheticSpace
from tests.support.search_run import SearchRun, new_session

PRODUCTS = (
    MatMul("wide", 56, 256, 64, weight=3),
    MatMul("deep", 14, 512, 512, weight=2),
    MatMul("prime", 49, 1009, 128),
    MatMul("other", 112, 64, 32, weight=4, operator="conv2d"),
)


@pytest.fixture(scope="session")
def space() -> SyntheticSpace:
    return SyntheticSpace(PRODUCTS)


@pytest.fixture(scope="session")
def long_run(space: SyntheticSpace) -> SearchRun:
    """A search of 300 trials; tests read it only."""
    return SearchRun(space, new_session(space, seed=5)).play(300)
