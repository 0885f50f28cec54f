"""`kintune service add-token`, `tokens`, `revoke`."""

from __future__ import annotations

import time
from datetime import datetime, timezone

import click
import msgspec

from kintune.cli.document import JsonTarget, echo, json_option, write_document
from kintune.cli.service.place import data_option, database_at
from kintune.service.access import NotFound, Scope
from kintune.service.audit_log import AuditLog
from kintune.service.users import Token, Users

__all__ = ["TokensDocument", "add_token", "list_tokens", "revoke"]


class TokensDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `kintune service tokens --json`; `user` is a user's number."""

    schema_version: int = 1
    tokens: list[Token]


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
    """List the tokens, without what is secret of them."""
    with database_at(data) as database:
        people = Users(database)
        names, tokens = {user.id: user.name for user in people.users()}, people.tokens()
    write_document(json_target, TokensDocument(tokens=tokens))
    for token in tokens:
        state = "revoked" if token.revoked else _until(token.expires)
        line = f"{token.id:5} {token.hint}... {names[token.user]:20} {token.scope.value:7} {state}  {token.label}"
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
