"""Under which conditions a time is taken, and what kind of device it is true for.

Two times may be compared only when their protocols are equal; two records describe the same fact only when their
device types are equal too.
"""

from __future__ import annotations

import msgspec

from kintune.space.candidate import digest_of

__all__ = ["DeviceType", "Protocol"]


class Protocol(msgspec.Struct, frozen=True):
    """How candidates are timed.

    `operands`: "cold" flushes the weights from all caches before every timed run, as they are in a network whose
    weights pass through between two runs of one kernel; activations stay as warm as their producer leaves them.
    "warm" flushes nothing.  `threads` run the kernel; `repeats` follow at least `warmups` untimed runs, and end early
    once `max_seconds` is spent (there is always at least one).  A repeat is one run, or the median of single runs when
    the kernel is short.
    """

    threads: int
    operands: str = "cold"
    warmups: int = 1
    repeats: int = 5
    max_seconds: float = 0.5
    version: int = 2


class DeviceType(msgspec.Struct, frozen=True):
    """What a time is true for: equal device types give comparable times.

    `target` is the compiler's canonical target (JSON), `model` the CPU or GPU as it names itself, `isa` the
    instruction set extensions that matter, sorted, `threads` the threads used, `protocol` the protocol's version and
    operands.
    """

    target: str
    model: str
    isa: tuple[str, ...]
    threads: int
    protocol: str

    @property
    def digest(self) -> str:
        """Content digest, the identity of the device type in records."""
        return digest_of(msgspec.msgpack.encode(self))
