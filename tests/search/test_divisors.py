from hypothesis import given
from hypothesis import strategies as st

from kintune.search.bounds import divisors


@given(st.integers(1, 5000))
def test_divisors_are_all_there_are(n: int) -> None:
    assert divisors(n) == tuple(d for d in range(1, n + 1) if n % d == 0)
