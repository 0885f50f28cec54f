"""How many independent sums a loop keeps in registers that measures the peak of a CPU's arithmetic."""

from __future__ import annotations

__all__ = ["FEW_CHAINS", "chains_within"]

FEW_CHAINS = 12
"""Enough to hide the latency of an instruction on two ports, and few enough for 16 registers."""

_MANY_CHAINS = 24  # of some processors, four ports take four cycles each


def chains_within(registers: int) -> int:
    """Return the number for a CPU with so many vector registers: more than fit are stored and loaded at each step."""
    return _MANY_CHAINS if registers > _MANY_CHAINS else FEW_CHAINS
