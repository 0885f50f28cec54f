"""What a machine is: cores, caches, instruction sets, memory."""

from __future__ import annotations

import msgspec

__all__ = ["Cache", "Machine"]


class Cache(msgspec.Struct, frozen=True):
    """One cache as the first core sees it: `kind` is data, instruction or unified; `size` is in bytes."""

    level: int
    kind: str
    size: int


class Machine(msgspec.Struct, frozen=True):
    """A machine.

    `physical_cores` and `logical_cores` are what it has, `usable_cores` what this process may use of the logical ones;
    `threads` is how many Kintune uses by default.  `memory` is in bytes.
    """

    cpu: str
    architecture: str
    physical_cores: int
    logical_cores: int
    usable_cores: int
    threads: int
    memory: int
    caches: tuple[Cache, ...]
    features: tuple[str, ...]
