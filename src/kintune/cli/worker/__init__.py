"""`kintune worker`: this machine's cores, lent to a service."""

from __future__ import annotations

from kintune.cli.lazy import Entry, LazyGroup

__all__ = ["COMMANDS", "command"]

COMMANDS = {
    "start": Entry("kintune.cli.worker.start", "Build here what a service wants to try.", extra="fleet"),
}

command = LazyGroup("worker", COMMANDS, help="Lend this machine's cores to a service.")
