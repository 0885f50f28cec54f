"""`kintune service add-token`, `tokens`, `revoke`."""

from __future__ import annotations

import time
from datetime import datetime, timezone

import click

from kintune.cli.service.place import data_option, database_at
from kintune.service.access import NotFound, Scope
from kintune.service.diary import Diary
from kintune.service.people import People

__all__ = ["add_token", "list_tokens", "revoke"]


@click.command("add-token", short_help="Make a token, which is shown once.")
@data_option
@click.option("--user", required=True, help="Whose it is; a new user is added.")
@click.option("--scope", type=click.Choice([scope.value for scope in Scope]), default="submit", show_default=True)
@click.option("--days", type=float, default=90.0, show_default=True, help="How long it lives; 0: for ever.")
@click.option("--label", default="", help="What it is for.")
def add_token(data: str, user: str, scope: str, days: float, label: str) -> None:
    """Make a token.  It is written to standard output, and can never be seen again."""
    now = time.time()
    with database_at(data) as database, database.transaction():
        people = People(database)
        try:
            owner = people.user(user)
        except NotFound:
            owner = people.add_user(user, now)
        token = people.add_token(owner, label, Scope(scope), now, days or None)
        Diary(database).note(now, "add token", token.hint, details={"user": user, "scope": scope})
    click.echo(token.text)


@click.command("tokens", short_help="List the tokens.")
@data_option
def list_tokens(data: str) -> None:
    """List the tokens, without what is secret of them."""
    with database_at(data) as database:
        people = People(database)
        names = {user.id: user.name for user in people.users()}
        for token in people.tokens():
            state = "revoked" if token.revoked else _until(token.expires)
            click.echo(
                f"{token.id:5} {token.hint}... {names[token.user]:20} {token.scope.value:7} {state}  {token.label}"
            )


@click.command("revoke", short_help="Revoke a token.")
@click.argument("token", type=int)
@data_option
def revoke(token: int, data: str) -> None:
    """Revoke the token with this number."""
    with database_at(data) as database, database.transaction():
        People(database).revoke(token, time.time())
        Diary(database).note(time.time(), "revoke token", str(token))
    click.echo(f"Token {token} is revoked.")


def _until(expires: float | None) -> str:
    if expires is None:
        return "for ever"
    day = datetime.fromtimestamp(expires, timezone.utc).date().isoformat()
    return f"{'until' if expires > time.time() else 'expired'} {day}"
