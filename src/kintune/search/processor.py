"""The properties of a processor that rules and analytic features depend on."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kintune.core.capabilities import vector_shape

__all__ = ["Processor"]


_CACHES = (32 << 10, 512 << 10, 8 << 20)  # bytes by level, where the sizes are not known


class Processor(msgspec.Struct, frozen=True):
    """A CPU: fp32 `lanes` of a vector, vector `registers`, and `threads`, each on its own core.

    `caches` are the sizes of the data caches in bytes: the first and second level of a core, and the shared third.
    """

    lanes: int = 8
    registers: int = 16
    threads: int = 1
    caches: tuple[int, int, int] = _CACHES

    @classmethod
    def of(cls, isa: Sequence[str], threads: int = 1, caches: Sequence[int] = ()) -> Processor:
        """Return the processor with these instruction set extensions (names as in /proc/cpuinfo).

        `caches` are bytes by level; a missing or zero entry is replaced by a common small size.
        """
        known = [size or usual for size, usual in zip([*caches, 0, 0, 0], _CACHES, strict=False)]
        lanes, registers = vector_shape(isa)
        return cls(lanes, registers, threads, (known[0], known[1], known[2]))
