"""What a search space needs to know of the processor that its programs are for."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

__all__ = ["Processor"]


_CACHES = (32 << 10, 512 << 10, 8 << 20)


class Processor(msgspec.Struct, frozen=True):
    """fp32 lanes of a vector, the number of vector registers, and `threads`, each on a core of its own.

    `caches` are the bytes of data that the caches hold, nearest first: two of each core's own, and one for all.
    """

    lanes: int = 8
    registers: int = 16
    threads: int = 1
    caches: tuple[int, int, int] = _CACHES

    @classmethod
    def of(cls, isa: Sequence[str], threads: int = 1, caches: Sequence[int] = ()) -> Processor:
        """The machine with these instruction set extensions (names as in /proc/cpuinfo).

        `caches` are bytes by level; a level that is not known is taken as small as they are today.
        """
        known = [size or usual for size, usual in zip([*caches, 0, 0, 0], _CACHES, strict=False)]
        lanes, registers = _vectors(frozenset(isa))
        return cls(lanes, registers, threads, (known[0], known[1], known[2]))


def _vectors(isa: frozenset[str]) -> tuple[int, int]:
    if any(name.startswith("avx512f") for name in isa):
        return 16, 32
    if "avx2" in isa or "avx" in isa:
        return 8, 16
    if "asimd" in isa or "neon" in isa:
        return 4, 32
    return 4, 16
