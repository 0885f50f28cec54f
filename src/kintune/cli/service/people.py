"""`kintune service add-user`, `users`, `lock`."""

from __future__ import annotations

import time

import click
import msgspec

from kintune.cli.document import JsonTarget, echo, json_option, write_document
from kintune.cli.service.place import data_option, database_at
from kintune.service.access import Quota
from kintune.service.audit_log import AuditLog
from kintune.service.users import User, Users

__all__ = ["UsersDocument", "add_user", "list_users", "lock"]


class UsersDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `kintune service users --json`."""

    schema_version: int = 1
    users: list[User]


@click.command("add-user", short_help="Add a user.")
@click.argument("name")
@data_option
@click.option("--jobs", type=click.IntRange(min=0), default=Quota().jobs, show_default=True, help="Jobs at once.")
@click.option("--upload-mb", type=click.IntRange(min=0), default=Quota().upload_mb, show_default=True, help="A model.")
@click.option("--minutes", type=float, default=Quota().minutes, show_default=True, help="Of tuning within a day.")
def add_user(name: str, data: str, jobs: int, upload_mb: int, minutes: float) -> None:
    """Add the user NAME, with quotas."""
    with database_at(data) as database, database.transaction():
        user = Users(database).add_user(name, time.time(), Quota(jobs, upload_mb, minutes))
        AuditLog(database).note(time.time(), "add user", user.name)
    click.echo(f"Added {user.name}.")


@click.command("users", short_help="List the users.")
@data_option
@json_option
def list_users(data: str, json_target: JsonTarget) -> None:
    """List the users and what they may use."""
    with database_at(data) as database:
        users = Users(database).users()
    write_document(json_target, UsersDocument(users=users))
    for user in users:
        quota = user.quota
        state = "locked out" if user.disabled else "may come in"
        line = f"{user.name:24} {state:12} {quota.jobs} jobs at once, {quota.upload_mb} MB a model, "
        echo(f"{line}{quota.minutes:g} minutes a day", json_target)


@click.command("lock", short_help="Lock a user out, or let them in again.")
@click.argument("name")
@data_option
@click.option("--undo", is_flag=True, help="Let them in again.")
def lock(name: str, data: str, undo: bool) -> None:
    """Lock the user NAME out: none of their tokens is taken any more."""
    with database_at(data) as database, database.transaction():
        Users(database).change_user(name, disabled=not undo)
        AuditLog(database).note(time.time(), "unlock" if undo else "lock", name)
    click.echo(f"{name} {'may come in again' if undo else 'is locked out'}.")
