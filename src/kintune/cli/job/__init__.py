"""`kintune job`: one job at a service."""

from __future__ import annotations

from kintune.cli.lazy import Entry, LazyGroup

__all__ = ["COMMANDS", "command"]

COMMANDS = {
    "show": Entry("kintune.cli.job.commands", "Show where it stands, and how it came there.", "show", "client"),
    "watch": Entry("kintune.cli.job.commands", "Show how it goes, until it is over.", "watch", "client"),
    "logs": Entry("kintune.cli.job.commands", "What its processes have said.", "logs", "client"),
    "cancel": Entry("kintune.cli.job.commands", "End it without a result.", "cancel", "client"),
    "retry": Entry("kintune.cli.job.commands", "Go on with one that failed or was cancelled.", "retry", "client"),
    "download": Entry("kintune.cli.job.commands", "Fetch the result.", "download", "client"),
}

command = LazyGroup("job", COMMANDS, help="Look at one job at a service, or change it.")
