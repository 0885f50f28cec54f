"""`kintune records`: look at, check, exchange and learn from what was measured."""

from __future__ import annotations

from kintune.cli.lazy import Entry, LazyGroup

__all__ = ["COMMANDS", "command"]

COMMANDS = {
    "list": Entry("kintune.cli.records.list", "List the runs."),
    "show": Entry("kintune.cli.records.show", "Show one run."),
    "check": Entry("kintune.cli.records.check", "Look for damage, and remove it if told so."),
    "export": Entry("kintune.cli.records.export", "Write what was measured to a file."),
    "import": Entry("kintune.cli.records.import_", "Add what a file holds."),
    "pretrain": Entry("kintune.cli.records.pretrain", "Train family models from what was measured."),
}

command = LazyGroup("records", COMMANDS, help="Look at, check, exchange and learn from what was measured.")
