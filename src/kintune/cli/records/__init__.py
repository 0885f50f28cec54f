"""`kintune records`: look at, check and exchange what was measured."""

from __future__ import annotations

from kintune.cli.lazy import Entry, LazyGroup

__all__ = ["COMMANDS", "command"]

COMMANDS = {
    "list": Entry("kintune.cli.records.list", "List the runs."),
    "show": Entry("kintune.cli.records.show", "Show one run."),
    "check": Entry("kintune.cli.records.check", "Look for damage."),
}

command = LazyGroup("records", COMMANDS, help="Look at, check and exchange what was measured.")
