"""Workloads as programs in vectors of fp32 read them; their variants are lanes and vector registers, as in "16x32"."""

from __future__ import annotations

from typing import NamedTuple

import tvm

from kintune.compiler.kernels.contraction import Reach
from kintune.compiler.kernels.reading import Joined
from kintune.errors import BuildError
from kintune.runtime.target import capabilities

__all__ = ["VectorCase", "vector_variant"]

_REGISTERS = (16, 32)


class VectorCase(NamedTuple):
    """A workload, what decisions depend on, and the lanes and registers of a variant.

    With `most`, the program is written for any number of positions up to that.  It may then read `outside` of the image
    along rows and columns, or not.
    """

    sums: Joined
    images: int
    rows: Reach
    columns: Reach
    channels: int
    filters: int
    groups: int
    lanes: int
    registers: int
    most: int = 0
    outside: tuple[bool, bool] = (False, False)

    @classmethod
    def of(cls, sums: Joined, reaches: tuple[Reach, Reach], variant: str, what: str) -> VectorCase:
        """The workload for a variant, with what it reads along rows and columns; `what` names the programs in messages.

        Raises:
            BuildError: there is no such variant.
        """
        lanes, _, registers = variant.partition("x")
        if not (lanes.isdecimal() and registers.isdecimal() and int(lanes) and int(registers) in _REGISTERS):
            raise BuildError(f"{what} have no variant {variant}")
        found = sums.found
        rows, columns = reaches
        return cls(
            sums, found.images, rows, columns, found.channels, found.filters, found.groups, int(lanes), int(registers)
        )

    def opened(self, greatest: VectorCase) -> VectorCase | None:
        """The workload, to be written for any extents up to those of the `greatest`; None where borders differ."""
        axes = [(self.rows, greatest.rows), (self.columns, greatest.columns)]
        own, last = ([bool(each.before or each.after > 0) for each in axis] for axis in zip(*axes, strict=True))
        if any(_apart_from_extents(one) != _apart_from_extents(other) for one, other in axes) or any(
            a > b for a, b in zip(own, last, strict=True)
        ):
            return None
        return self._replace(most=greatest.positions, outside=(last[0], last[1]))

    @property
    def positions(self) -> int:
        """The results of a filter."""
        return self.images * self.rows.results * self.columns.results


def vector_variant(target: tvm.target.Target) -> str:
    """The variant for a CPU; empty where the registers are neither 16 nor 32."""
    can = capabilities(target)
    return f"{can.lanes}x{can.registers}" if can.registers in _REGISTERS else ""


def _apart_from_extents(reach: Reach) -> Reach:
    """What is read along an axis, whatever its extent is."""
    return reach._replace(size=min(reach.size, 2), results=min(reach.results, 2), after=0)
