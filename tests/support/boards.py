"""Boards for tests: what their device workers would say of them."""

from __future__ import annotations

from kintune.core.device import DeviceDescription, Machine
from kintune.core.measurement_protocol import DeviceType, MeasurementProtocol

__all__ = ["board_about"]


def board_about(
    cpu: str, *, threads: int = 4, isa: tuple[str, ...] = (), pulse_us: float = 0.0, compiler: str = "tvm 1"
) -> DeviceDescription:
    """A board with this processor."""
    target = f'{{"kind": "llvm", "mcpu": "{cpu.lower()}", "mtriple": "aarch64-linux-gnu"}}'
    machine = Machine(cpu, "aarch64", threads, threads, threads, threads, 8 << 30, (), isa)
    kind = DeviceType(target, cpu, isa, threads, "2-cold")
    return DeviceDescription(
        kind, MeasurementProtocol(threads=threads), tuple(range(threads)), machine, compiler, pulse_us
    )
