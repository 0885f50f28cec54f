"""The description that a device worker gives of its device; free of TVM, so that the front can read it."""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from kintune.core.candidate import FULL_PRECISION
from kintune.core.measurement_protocol import DeviceType, MeasurementProtocol, Occurring, operands_for

__all__ = ["BY_AMX", "Cache", "DeviceDescription", "Machine", "NarrowSpeed", "Peak"]


BY_AMX = "AMX"
"""The value of `NarrowSpeed.instructions` for AMX tiles."""


class DeviceDescription(msgspec.Struct, frozen=True):
    """`Hello.about` of a device worker: what it measures, how, on which machine, with programs of which compiler.

    `protocol` is the one for a search: those that confirm differ in repeats only.  `cores` are the processors that its
    threads are pinned to, one on each physical core.  `pulse_us` is the time of the reference kernel in microseconds
    (`kintune.measure.health`); 0 where it was not measured.  A network whose weights and largest activations take at
    most `cool_bytes` keeps its weights in the last-level cache from one inference to the next; 0: not known.
    """

    device_type: DeviceType
    protocol: MeasurementProtocol
    cores: tuple[int, ...]
    machine: Machine
    compiler: str
    pulse_us: float = 0.0
    cool_bytes: int = 0

    def protocol_for(self, network: Iterable[Occurring]) -> MeasurementProtocol:
        """How kernels of a network of these subgraphs are timed."""
        return self.protocol.with_operands(operands_for(network, self.cool_bytes))

    def crowded(self) -> DeviceDescription:
        """The same device when measurements may share it; a type of its own, as its times are not comparable."""
        kind = self.device_type
        apart = msgspec.structs.replace(kind, protocol=f"{kind.protocol}-crowded")
        return msgspec.structs.replace(self, device_type=apart)


class Peak(msgspec.Struct, frozen=True):
    """The most a device does with its threads: fp32 GFLOP/s in registers, GB/s (1e9 bytes) streamed through memory.

    `gbytes_per_s` is that of a triad, as STREAM counts it; `read_gbytes_per_s` that of reading alone, 0 where it was
    not measured.  `narrow_gflops` has the GFLOP/s by precision, such as "bf16", for which the device has instructions
    of its own; None where that was not measured.
    """

    gflops: float
    gbytes_per_s: float
    threads: int
    read_gbytes_per_s: float = 0.0
    narrow_gflops: dict[str, float] | None = None

    def gflops_in(self, precision: str) -> float | None:
        """The GFLOP/s in a precision, "fp32" or a narrower one; None where that was not measured.

        A device without instructions for it is as fast as in fp32.
        """
        if precision == FULL_PRECISION:
            return self.gflops
        return None if self.narrow_gflops is None else self.narrow_gflops.get(precision, self.gflops)

    def least_us(self, flops: float, nbytes: float, precision: str = FULL_PRECISION) -> float:
        """Microseconds that so many FLOPs in a precision, and bytes read from memory, take at least: the roofline.

        Without the peak in that precision, arithmetic takes no time.
        Williams, Waterman and Patterson, CACM 52(4), 2009.  A triad that was not told to write around the caches reads
        what it writes as well, so without a figure for reading alone, a third more than the triad's is taken for it.
        """
        reading = self.read_gbytes_per_s or self.gbytes_per_s * 4 / 3
        gflops = self.gflops_in(precision) or math.inf
        return max(flops / gflops, nbytes / reading) / 1e3


class NarrowSpeed(msgspec.Struct, frozen=True):
    """How fast a device computes with shorter numbers by one kind of instructions, such as "AMX" for "bf16".

    `problem` says why it cannot, and is empty where it computes right; `times_fp32` is how many times as fast as fp32 a
    product of matrices is then, data converted on the way.
    """

    instructions: str
    precision: str
    problem: str = ""
    times_fp32: float = 0.0

    @property
    def is_faster(self) -> bool:
        """Whether it computes right and is faster than fp32."""
        return not self.problem and self.times_fp32 > 1.0


class Cache(msgspec.Struct, frozen=True):
    """One cache as the first core sees it: `kind` is data, instruction or unified; `size` is in bytes."""

    level: int
    kind: str
    size: int


class Machine(msgspec.Struct, frozen=True):
    """A machine.

    `physical_cores` and `logical_cores` are what it has, `usable_cores` what this process may use of the logical ones;
    `threads` is how many Kintune uses by default.  `memory` is in bytes.  Where a control group limits its CPU time,
    `quota_cores` has the seconds a second that it allows.
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
    quota_cores: float | None = None
