"""The conditions under which a time is measured, and the type of device for which it is valid.

Two times may be compared only when their protocols are equal; two records describe the same fact only when their
device types are equal too.
"""

from __future__ import annotations

import typing
from collections.abc import Iterable

import msgspec

from kintune.core.candidate import digest_of
from kintune.core.capabilities import Capabilities, capabilities_of

__all__ = ["FLUSHED", "OPERANDS", "DeviceType", "MeasurementProtocol", "Occurring", "operands_for"]

OPERANDS = ("cold", "cool", "warm")
"""The possible cache states of weights before a timed run."""

FLUSHED = "all-but-first"
"""How the protocols of boards end: the compiler's RPC server flushes all arguments but the first from the caches."""


class MeasurementProtocol(msgspec.Struct, frozen=True):
    """How candidates are timed.

    `operands` is the cache state of the weights before every timed run.  "cold": they are flushed from all caches, as
    in a network that reads all its other weights between two runs of a kernel.  "cool": they are in the last-level
    cache only, where the weights of a small network stay.  In both cases, activations stay as warm as their producer
    leaves them.  "warm": nothing is flushed.

    `threads` run the kernel.  `repeats` follow at least `warmups` untimed runs, and end early once `max_seconds` is
    spent (there is always at least one).  A repeat is one run, or the median of single runs when the kernel is short.
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
    def capabilities(self) -> Capabilities:
        """What devices of this type can do."""
        return capabilities_of(self.target, self.isa, self.threads, remote=self.protocol.endswith(FLUSHED))

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
    """Return the operands, "cool" or "cold", with which kernels of a network of these subgraphs are timed.

    They are cool if the weights stay in the last-level cache from one inference to the next.  That is so if all weights
    and the largest activations of a subgraph take at most `cool_bytes` together; 0 where a device cannot tell.
    """
    subgraphs = tuple(network)
    weights = sum(s.weight * s.weight_bytes for s in subgraphs)
    activations = max((s.bytes - s.weight_bytes for s in subgraphs), default=0.0)
    return "cool" if weights > 0 and weights + activations <= cool_bytes else "cold"
