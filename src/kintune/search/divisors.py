"""The divisors of an extent: what a perfect tile can be made of."""

from __future__ import annotations

from functools import lru_cache

__all__ = ["divisors"]


@lru_cache(maxsize=4096)
def divisors(n: int) -> tuple[int, ...]:
    """All divisors of `n` (at least 1), ascending."""
    small = [d for d in range(1, int(n**0.5) + 1) if n % d == 0]
    return tuple(small + [n // d for d in reversed(small) if d * d != n])
