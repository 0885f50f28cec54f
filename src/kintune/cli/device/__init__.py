"""`kintune device`: this machine's devices, lent to a service."""

from __future__ import annotations

from kintune.cli.lazy import Entry, LazyGroup

__all__ = ["COMMANDS", "command"]

COMMANDS = {
    "start": Entry("kintune.cli.device.start", "Measure here what a service wants to know.", extra="fleet"),
}

command = LazyGroup("device", COMMANDS, help="Lend this machine's devices to a service.")
