"""`kintune service`: users and tokens of a service on this machine."""

from __future__ import annotations

from kintune.cli.lazy import Entry, LazyGroup

__all__ = ["COMMANDS", "command"]

COMMANDS = {
    "add-user": Entry("kintune.cli.service.people", "Add a user.", "add_user", "service"),
    "users": Entry("kintune.cli.service.people", "List the users.", "list_users", "service"),
    "lock": Entry("kintune.cli.service.people", "Lock a user out, or let them in again.", "lock", "service"),
    "add-token": Entry("kintune.cli.service.tokens", "Make a token, which is shown once.", "add_token", "service"),
    "tokens": Entry("kintune.cli.service.tokens", "List the tokens.", "list_tokens", "service"),
    "revoke": Entry("kintune.cli.service.tokens", "Revoke a token.", "revoke", "service"),
    "machines": Entry(
        "kintune.cli.service.machines",
        "List the machines that have joined, and their devices' types.",
        "list_machines",
        "service",
    ),
    "forget-type": Entry(
        "kintune.cli.service.machines",
        "Let the next device say what those of a type are.",
        "forget_type",
        "service",
    ),
    "backup": Entry("kintune.cli.service.archive", "Write everything to one file.", "backup", "service"),
    "restore": Entry("kintune.cli.service.archive", "Make a service out of a back-up.", "restore_", "service"),
}

command = LazyGroup("service", COMMANDS, help="Look after a service on this machine.")
