"""The conditions under which a time is measured, and the type of device for which it is valid.

Two times may be compared only when their protocols are equal; two records describe the same fact only when their
device types are equal too.
"""

from __future__ import annotations

import typing
from collections.abc import Iterable

import msgspec

from kintune.core.candidate import digest_of

__all__ = ["FLUSHED", "OPERANDS", "DeviceType", "MeasurementProtocol", "Occurring", "operands_for"]

OPERANDS = ("cold", "cool", "warm")
"""The possible cache states of weights before a timed run."""

FLUSHED = "all-but-first"
"""Ends the protocol of boards: there all arguments but the first are flushed, by the compiler's own RPC server."""


class MeasurementProtocol(msgspec.Struct, frozen=True):
    """How candidates are timed.

    `operands`: "cold" flushes the weights from all caches before every timed run, as they are in a network whose
    weights pass through between two runs of one kernel; "cool" sends them as far as the last cache, where those of a
    small network stay; activations stay as warm as their producer leaves them.  "warm" flushes nothing.  `threads` run
    the kernel; `repeats` follow at least `warmups` untimed runs, and end early once `max_seconds` is spent (there is
    always at least one).  A repeat is one run, or the median of single runs when the kernel is short.
    """

    threads: int
    operands: str = "cold"
    warmups: int = 1
    repeats: int = 5
    max_seconds: float = 0.5
    version: int = 2

    def with_operands(self, operands: str) -> MeasurementProtocol:
        """The same with other operands."""
        return msgspec.structs.replace(self, operands=operands)


class DeviceType(msgspec.Struct, frozen=True):
    """The conditions for which a time is valid: equal device types give comparable times.

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

    @property
    def operands(self) -> str:
        """The cache state of weights; empty where the protocol does not say."""
        named = self.protocol.split("-")
        return named[1] if len(named) > 1 and named[1] in OPERANDS else ""

    def with_operands(self, operands: str) -> DeviceType:
        """The same device when it times with other operands; itself where its protocol does not say what they are."""
        if not self.operands:
            return self
        version, _, *rest = self.protocol.split("-")
        return msgspec.structs.replace(self, protocol="-".join((version, operands, *rest)))


class Occurring(typing.Protocol):
    """A subgraph that a network has `weight` times: a run moves `bytes`, of which `weight_bytes` are its weights."""

    @property
    def weight(self) -> int:
        """The number of occurrences."""
        ...

    @property
    def bytes(self) -> float:
        """The bytes of all its arguments."""
        ...

    @property
    def weight_bytes(self) -> float:
        """The bytes of its weights."""
        ...


def operands_for(network: Iterable[Occurring], cool_bytes: float) -> str:
    """How warm the weights of a network of these subgraphs are to be when its kernels are timed.

    Cool is what stays in the last cache from one inference to the next.  `cool_bytes` is the most that does, 0 where a
    device cannot tell: all weights, and the largest activations that pass through between two runs of a kernel.
    """
    subgraphs = tuple(network)
    weights = sum(s.weight * s.weight_bytes for s in subgraphs)
    activations = max((s.bytes - s.weight_bytes for s in subgraphs), default=0.0)
    return "cool" if weights > 0 and weights + activations <= cool_bytes else "cold"
