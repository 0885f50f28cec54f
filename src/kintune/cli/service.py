"""`kintune service`: users, tokens, machines, back-ups.  All commands work on the database in a data directory."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime, timezone

import click
import msgspec

from kintune.cli.document import JsonTarget, echo, json_option, write_document
from kintune.cli.finite_range import FiniteRange
from kintune.cli.widths import output_width
from kintune.core.device import DeviceDescription
from kintune.errors import InputError
from kintune.files import check_readable, check_writable, expanded
from kintune.records.database import Database
from kintune.service.access import NotFound, Quota, Scope
from kintune.service.archive import back_up, restore
from kintune.service.audit_log import AuditEntry, AuditLog
from kintune.service.database import open_database
from kintune.service.machines import DeviceTypes, RegisteredMachine, machines_in
from kintune.service.settings import ServiceSettings, settings_in
from kintune.service.supervisor import data_directory
from kintune.service.users import MOST_DAYS, Token, User, Users
from kintune.terminal.formatting import counted
from kintune.terminal.table import Column, table_lines

__all__ = [
    "AuditDocument",
    "MachinesDocument",
    "TokensDocument",
    "UsersDocument",
    "add_token",
    "add_user",
    "backup",
    "change_user",
    "data_option",
    "database_at",
    "forget_type",
    "list_audit",
    "list_machines",
    "list_tokens",
    "list_users",
    "lock",
    "restore_",
    "revoke",
    "settings_at",
]


_USER_COLUMNS = (
    Column("user", yields=True),
    Column("state"),
    Column("jobs at once", right=True),
    Column("a model", right=True),
    Column("all uploads", right=True),
    Column("a day", right=True),
)
_TOKEN_COLUMNS = (
    Column("number", right=True),
    Column("token"),
    Column("user", yields=True),
    Column("scope"),
    Column("state"),
    Column("label", yields=True),
)
_MACHINE_COLUMNS = (
    Column("machine", yields=True),
    Column("token", right=True),
    Column("joined last"),
    Column("brings", yields=True),
)
_AUDIT_COLUMNS = (
    Column("at (UTC)"),
    Column("user", yields=True),
    Column("action"),
    Column("subject", yields=True),
    Column("from", optional=True),
)
_TYPE_COLUMNS = (
    Column("type", yields=True),
    Column("CPU or GPU", yields=True),
    Column("threads", right=True),
    Column("extensions", yields=True),
)


data_option = click.option(
    "--data", default="kintune-service", show_default=True, metavar="DIR", help="The service's data directory."
)


@contextmanager
def database_at(data: str, *, make: bool = False) -> Iterator[Database]:
    """The database of the service in this directory, which is made if it is to `make` one for the first user.

    Raises:
        InputError: there is no such directory.
    """
    directory = expanded(data).absolute()
    if make and not directory.exists():
        click.echo(f"{data_directory(directory)} is a new data directory.", err=True)
    with closing(open_database(settings_at(data).service_database)) as database:
        yield database


def settings_at(data: str) -> ServiceSettings:
    """The settings of the service in this directory.

    Raises:
        InputError: there is none, or they cannot be read.
    """
    directory = expanded(data).absolute()
    if not os.path.isdir(directory):
        raise InputError(
            f"--data {data}: there is no such directory; name that of a service, which `kintune serve --data DIR` makes"
        )
    return settings_in(directory) or ServiceSettings(
        data=str(directory), database=os.environ.get("KINTUNE_DATABASE", "")
    )


class UsersDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `kintune service users --json`; that of `change-user` has one user."""

    schema_version: int = 1
    users: list[User]


@click.command("add-user", short_help="Add a user.")
@click.argument("name")
@data_option
@click.option("--jobs", type=click.IntRange(min=0), default=Quota().jobs, show_default=True, help="Most jobs at once.")
@click.option(
    "--upload-mb",
    type=click.IntRange(min=0),
    default=Quota().upload_mb,
    show_default=True,
    help="Largest upload, in MB.",
)
@click.option(
    "--storage-mb",
    type=click.IntRange(min=0),
    default=Quota().storage_mb,
    show_default=True,
    help="All uploads and results together, in MB.",
)
@click.option(
    "--minutes", type=FiniteRange(min=0), default=Quota().minutes, show_default=True, help="Minutes of tuning per day."
)
def add_user(name: str, data: str, jobs: int, upload_mb: int, storage_mb: int, minutes: float) -> None:
    """Add the user NAME, with quotas."""
    with database_at(data, make=True) as database, database.transaction():
        user = Users(database).add_user(name, time.time(), Quota(jobs, upload_mb, minutes, storage_mb))
        AuditLog(database).note(time.time(), "add user", user.name)
    click.echo(f"Added {user.name}.")


@click.command("change-user", short_help="Change the quotas of a user.")
@click.argument("name")
@data_option
@click.option("--jobs", type=click.IntRange(min=0), help="Most jobs at once.")
@click.option("--upload-mb", type=click.IntRange(min=0), help="Largest upload, in MB.")
@click.option("--storage-mb", type=click.IntRange(min=0), help="All uploads and results together, in MB.")
@click.option("--minutes", type=FiniteRange(min=0), help="Minutes of tuning per day.")
@json_option
def change_user(name: str, data: str, json_target: JsonTarget, **quota: float | None) -> None:
    """Change the quotas of the user NAME; those that are not given stay."""
    given = {limit: value for limit, value in quota.items() if value is not None}
    if not given:
        raise InputError("nothing is to be changed: give --jobs, --upload-mb, --storage-mb or --minutes")
    with database_at(data) as database, database.transaction():
        users = Users(database)
        user = users.change_user(name, quota=msgspec.structs.replace(users.user(name).quota, **given))
        AuditLog(database).note(time.time(), "change user", name, details=given)
    write_document(json_target, UsersDocument(users=[user]))
    echo(f"Changed {name}.", json_target)


@click.command("users", short_help="List the users.")
@data_option
@json_option
def list_users(data: str, json_target: JsonTarget) -> None:
    """List the users and their quotas."""
    with database_at(data) as database:
        users = Users(database).users()
    write_document(json_target, UsersDocument(users=users))
    rows = []
    for user in users:
        quota, state = user.quota, "locked out" if user.disabled else "active"
        sizes = (f"{quota.upload_mb} MB", f"{quota.storage_mb} MB")
        rows.append([user.name, state, str(quota.jobs), *sizes, f"{quota.minutes:g} min"])
    for line in table_lines(_USER_COLUMNS, rows, output_width()):
        echo(line, json_target)


@click.command("lock", short_help="Lock a user out, or let them in again.")
@click.argument("name")
@data_option
@click.option("--undo", is_flag=True, help="Let them in again.")
def lock(name: str, data: str, undo: bool) -> None:
    """Lock the user NAME out: all their tokens are refused."""
    with database_at(data) as database, database.transaction():
        Users(database).change_user(name, disabled=not undo)
        AuditLog(database).note(time.time(), "unlock" if undo else "lock", name)
    click.echo(f"{name} {'is no longer locked out' if undo else 'is locked out'}.")


class TokensDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `kintune service tokens --json`; `user` is a user's number."""

    schema_version: int = 1
    tokens: list[Token]


@click.command("add-token", short_help="Create a token, which is shown once.")
@data_option
@click.option("--user", required=True, help="The token's user; a new user is created.")
@click.option(
    "--scope",
    type=click.Choice([scope.value for scope in Scope]),
    default="submit",
    show_default=True,
    help="What the token allows; read: view; submit: also submit jobs; admin: everything; machine: join as a machine.",
)
@click.option(
    "--days", type=FiniteRange(0, MOST_DAYS), default=90.0, show_default=True, help="Days until it expires; 0: never."
)
@click.option("--label", default="", help="A note on the purpose of the token.")
def add_token(data: str, user: str, scope: str, days: float, label: str) -> None:
    """Create a token.  It is written to standard output, and cannot be shown again."""
    now = time.time()
    with database_at(data, make=True) as database, database.transaction():
        people = Users(database)
        try:
            owner = people.user(user)
        except NotFound:
            owner = people.add_user(user, now)
        token = people.add_token(owner, label, Scope(scope), now, days or None)
        AuditLog(database).note(now, "add token", token.hint, details={"user": user, "scope": scope})
    click.echo(token.text)


@click.command("tokens", short_help="List the tokens.")
@data_option
@json_option
def list_tokens(data: str, json_target: JsonTarget) -> None:
    """List the tokens, without their secret parts."""
    with database_at(data) as database:
        people = Users(database)
        names, tokens = {user.id: user.name for user in people.users()}, people.tokens()
    write_document(json_target, TokensDocument(tokens=tokens))
    rows = []
    for token in tokens:
        state = "revoked" if token.revoked else _until(token.expires)
        rows.append([str(token.id), f"{token.hint}...", names[token.user], token.scope.value, state, token.label])
    for line in table_lines(_TOKEN_COLUMNS, rows, output_width()):
        echo(line, json_target)


@click.command("revoke", short_help="Revoke a token.")
@click.argument("token", type=int)
@data_option
def revoke(token: int, data: str) -> None:
    """Revoke the token with this number."""
    with database_at(data) as database, database.transaction():
        Users(database).revoke(token, time.time())
        AuditLog(database).note(time.time(), "revoke token", str(token))
    click.echo(f"Token {token} is revoked.")


def _until(expires: float | None) -> str:
    if expires is None:
        return "for ever"
    day = datetime.fromtimestamp(expires, timezone.utc).date().isoformat()
    return f"{'until' if expires > time.time() else 'expired'} {day}"


class MachinesDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `kintune service machines --json`; `types` are the types of devices by name."""

    schema_version: int = 1
    machines: list[RegisteredMachine]
    types: dict[str, DeviceDescription]


@click.command("machines", short_help="List the machines that have joined, and their devices' types.")
@data_option
@json_option
def list_machines(data: str, json_target: JsonTarget) -> None:
    """List the machines that have joined, and the types of their devices."""
    with database_at(data) as database:
        machines, types = machines_in(database), DeviceTypes(database).all()
    write_document(json_target, MachinesDocument(machines=machines, types=types))
    rows = []
    for machine in machines:
        offer = machine.offer
        brings = [f"{counted(offer.cores, 'core')} to build on"] if offer.cores else []
        brings += [f"{name} (a {type})" for name, type in offer.devices.items()]
        joined = datetime.fromtimestamp(machine.joined, timezone.utc).isoformat(" ", "minutes")
        rows.append([machine.name, str(machine.token), joined[:16], ", ".join(brings)])
    for line in table_lines(_MACHINE_COLUMNS, rows, output_width()):
        echo(line, json_target)
    kinds = [(name, about.device_type) for name, about in types.items()]
    described = [[name, kind.model, str(kind.threads), " ".join(kind.isa) or "no extensions"] for name, kind in kinds]
    for line in ["", *table_lines(_TYPE_COLUMNS, described, output_width())] if described else []:
        echo(line, json_target)


class AuditDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `kintune service audit --json`, newest first; `users` are names of users by number."""

    schema_version: int = 1
    entries: list[AuditEntry]
    users: dict[int, str]


@click.command("audit", short_help="List who did what, newest first.")
@data_option
@click.option(
    "--limit", type=click.IntRange(min=1), default=50, show_default=True, help="Most entries that are listed."
)
@json_option
def list_audit(data: str, limit: int, json_target: JsonTarget) -> None:
    """List the audit log: who did what, when and from where.  What was done on the machine itself has no user."""
    with database_at(data) as database:
        entries = AuditLog(database).read(limit=limit)
        users = Users(database).names(entry.user for entry in entries if entry.user is not None)
    write_document(json_target, AuditDocument(entries=entries, users=users))
    rows = []
    for entry in entries:
        at = datetime.fromtimestamp(entry.at, timezone.utc).isoformat(" ", "seconds")[:19]
        who = "" if entry.user is None else users.get(entry.user, str(entry.user))
        rows.append([at, who, entry.action, entry.subject, entry.address])
    for line in table_lines(_AUDIT_COLUMNS, rows, output_width()):
        echo(line, json_target)


@click.command("forget-type", short_help="Forget the description of a device type.")
@click.argument("name")
@data_option
def forget_type(name: str, data: str) -> None:
    """Forget the description of the device type NAME: the next device that joins describes it again.

    Start `kintune device start` on the boards of that type again afterwards: they are measured only then.
    """
    with database_at(data) as database, database.transaction():
        DeviceTypes(database).forget(name)
        AuditLog(database).note(time.time(), "forget type", name)
    click.echo(f"Forgot the description of {name}.")


@click.command("backup", short_help="Write all data of the service to one file.")
@click.argument("file")
@data_option
def backup(file: str, data: str) -> None:
    """Write users, jobs, models, results and records to FILE, a tar archive.  The service can run meanwhile.

    Whoever can read the file can read everything; tokens are in it as hashes only.
    """
    target = check_writable(file, "FILE")
    count = back_up(settings_at(data), target)
    click.echo(f"{target}: the tables and {counted(count, 'file')}, {target.stat().st_size / 1e6:.1f} MB.")


@click.command("restore", short_help="Restore a service from a back-up.")
@click.argument("file")
@data_option
@click.option("--database", default="", metavar="URL", help="An empty database, for a back-up of one in PostgreSQL.")
def restore_(file: str, data: str, database: str) -> None:
    """Restore a service from the back-up FILE to a new directory."""
    source = check_readable(file, "FILE")
    settings = restore(source, expanded(data).absolute(), database)
    rest = " --database URL, the same" if database else ""
    click.echo(f"Restored to {settings.data}; start it with: kintune serve --data {data}{rest}")
