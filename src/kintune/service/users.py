"""Users and their tokens.  A token's text is shown once; the database keeps its SHA-256."""

from __future__ import annotations

import contextlib
import hashlib
import math
import re
import secrets
from collections.abc import Iterable
from typing import NamedTuple

import msgspec
from sqlalchemy import insert, select, update

from kintune.errors import InputError, StorageError
from kintune.records.database import Database
from kintune.service.access import TAKES_A_TOKEN, NotFound, Quota, Scope, Unauthorized, Visitor
from kintune.service.database import plain
from kintune.service.schema import tokens, users

__all__ = ["MOST_DAYS", "NewToken", "Token", "User", "Users", "hash_of", "looks_like_a_token", "new_token"]
_NAME = re.compile(r"[a-z0-9][a-z0-9._@-]{0,63}")
_LOCAL = "local"
_DAY_S = 86400.0
MOST_DAYS = 36500.0
"""How long a token that expires may live."""

_NOTED_EVERY_S = 60.0  # how exactly it is known when a token was used last
_PREFIX = "kt_"
_BYTES = 32
_SHAPE = re.compile(rf"{_PREFIX}[A-Za-z0-9_-]{{43}}")


class User(msgspec.Struct, frozen=True):
    """Somebody who may use the service."""

    id: int
    name: str
    quota: Quota
    disabled: bool
    created: float


class Token(msgspec.Struct, frozen=True):
    """A token, without what is secret of it."""

    id: int
    user: int
    hint: str
    label: str
    scope: Scope
    created: float
    expires: float | None
    revoked: float | None
    used: float | None


class Users:
    """Who may use the service; `now` is an argument everywhere, in seconds since 1970."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add_user(self, name: str, now: float, quota: Quota | None = None) -> User:
        """Adds a user.

        Raises:
            InputError: the name is taken or not allowed, or the quota makes no sense.
        """
        if not _NAME.fullmatch(name):
            raise InputError(f"user {name[:64]!r}: names are up to 64 small letters, digits and . _ @ -")
        quota = _checked(quota or Quota())
        with self._database.transaction() as connection:
            if connection.scalar(select(users.c.id).where(users.c.name == name)) is not None:
                raise InputError(f"there is a user {name!r} already")
            row = {"name": name, "quota": msgspec.json.encode(quota).decode(), "disabled": False, "created": now}
            found = connection.execute(insert(users).values(**row).returning(users.c.id)).scalar_one()
        return User(found, name, quota, False, now)

    def user(self, name: str) -> User:
        """Returns the user of this name.

        Raises:
            NotFound: there is none.
        """
        if (found := self._named(name)) is None:
            raise NotFound(f"there is no user {name[:64]!r}")
        return found

    def users(self) -> list[User]:
        """All users, by name."""
        with self._database.snapshot() as connection:
            return [_user(plain(row)) for row in connection.execute(select(users).order_by(users.c.name))]

    def names(self, ids: Iterable[int]) -> dict[int, str]:
        """Returns the names of users by number."""
        query = select(users.c.id, users.c.name).where(users.c.id.in_(sorted(set(ids))))
        with self._database.snapshot() as connection:
            return {row.id: row.name for row in connection.execute(query)}

    def change_user(self, name: str, *, quota: Quota | None = None, disabled: bool | None = None) -> User:
        """Gives a user another quota, or locks them out.

        Raises:
            NotFound: there is no such user.
            InputError: the quota makes no sense.
        """
        changes: dict[str, object] = {}
        if quota is not None:
            changes["quota"] = msgspec.json.encode(_checked(quota)).decode()
        if disabled is not None:
            changes["disabled"] = disabled
        with self._database.transaction() as connection:
            user = self.user(name)
            if changes:
                connection.execute(update(users).where(users.c.id == user.id).values(**changes))
            return self.user(name)

    def add_token(self, user: User, label: str, scope: Scope, now: float, days: float | None) -> NewToken:
        """Makes a new token, whose text is not kept; it expires after so many `days`, or never.

        Raises:
            InputError: `days` is not more than 0, or more than `MOST_DAYS`.
        """
        if days is not None and not 0 < days <= MOST_DAYS:
            raise InputError(f"a token lives for more than 0 and up to {MOST_DAYS:g} days, not {days:g}")
        token = new_token()
        row = {
            "user": user.id,
            "hash": token.hash,
            "hint": token.hint,
            "label": label[:64],
            "scope": scope.value,
            "created": now,
            "expires": None if days is None else now + days * _DAY_S,
        }
        with self._database.transaction() as connection:
            connection.execute(insert(tokens).values(**row))
        return token

    def tokens(self, user: User | None = None) -> list[Token]:
        """Returns the tokens of a user, or all."""
        query = select(tokens).order_by(tokens.c.id)
        if user is not None:
            query = query.where(tokens.c.user == user.id)
        with self._database.snapshot() as connection:
            return [_token(plain(row)) for row in connection.execute(query)]

    def any_token(self) -> bool:
        """Whether anybody has ever had a token: from then on everybody needs one, also once all have expired.

        Those of machines do not count.
        """
        with self._database.snapshot() as connection:
            peoples = select(tokens.c.id).where(tokens.c.scope != Scope.MACHINE.value).limit(1)
            return connection.scalar(peoples) is not None

    def local(self, now: float) -> Visitor:
        """Returns the user `local`, who may do everything: any visitor at this machine as long as no user has a token.

        Raises:
            Unauthorized: somebody has had a token.
        """
        with self._database.snapshot():  # nothing is written as a rule, since every request asks
            if self.any_token():
                raise Unauthorized(TAKES_A_TOKEN)
            known = self._named(_LOCAL)
        if known is None:
            with contextlib.suppress(InputError):  # RecordsError as well: another request has added it meanwhile
                self.add_user(_LOCAL, now)
            known = self.user(_LOCAL)
        return Visitor(known.id, known.name, Scope.ADMIN, None, known.quota)

    def revoke(self, token: int, now: float) -> None:
        """Revokes a token.

        Raises:
            NotFound: there is no such token.
        """
        with self._database.transaction() as connection:
            if connection.scalar(select(tokens.c.id).where(tokens.c.id == token)) is None:
                raise NotFound(f"there is no token {token}")
            mine = (tokens.c.id == token) & tokens.c.revoked.is_(None)
            connection.execute(update(tokens).where(mine).values(revoked=now))

    def visitor(self, text: str, now: float) -> Visitor:
        """Returns the visitor that a token stands for.

        Raises:
            Unauthorized: the token is unknown, expired or revoked, or its user is locked out; the message does not
                say which.
        """
        if not looks_like_a_token(text):
            raise Unauthorized("this takes a valid token")
        joined = select(tokens, users.c.name, users.c.quota, users.c.disabled).join(users, users.c.id == tokens.c.user)
        with self._database.snapshot() as connection:
            row = connection.execute(joined.where(tokens.c.hash == hash_of(text))).one_or_none()
        if row is None or row.revoked is not None or row.disabled or (row.expires is not None and row.expires <= now):
            raise Unauthorized("this takes a valid token")
        if row.used is None or now - row.used > _NOTED_EVERY_S:
            # On a full disk it stays unknown when it was used.
            with contextlib.suppress(StorageError), self._database.transaction() as connection:
                connection.execute(update(tokens).where(tokens.c.id == row.id).values(used=now))
        quota = msgspec.json.decode(row.quota, type=Quota)
        return Visitor(row.user, row.name, Scope(row.scope), row.id, quota)

    def _named(self, name: str) -> User | None:
        with self._database.snapshot() as connection:
            row = connection.execute(select(users).where(users.c.name == name)).one_or_none()
        return None if row is None else _user(plain(row))


def _checked(quota: Quota) -> Quota:
    """Returns the quota if its numbers are valid; infinities would be lost in JSON.

    Raises:
        InputError: they are not.
    """
    counts = (quota.jobs, quota.upload_mb, quota.storage_mb)
    if min(counts) < 0 or not 0 <= quota.minutes < math.inf:
        raise InputError("a quota has finite numbers that are not below 0")
    return quota


def _user(row: dict[str, object]) -> User:
    return msgspec.convert({**row, "quota": msgspec.json.decode(str(row["quota"]))}, User)


def _token(row: dict[str, object]) -> Token:
    return msgspec.convert({name: row[name] for name in Token.__struct_fields__}, Token)


class NewToken(NamedTuple):
    """A token as it was made; `hint` is its beginning, by which users tell their tokens apart."""

    text: str
    hash: str
    hint: str


def new_token() -> NewToken:
    """Draw a token from the system's randomness: 256 bits."""
    text = _PREFIX + secrets.token_urlsafe(_BYTES)
    return NewToken(text, hash_of(text), text[: len(_PREFIX) + 6])


def hash_of(text: str) -> str:
    """Returns what is kept of a token: its SHA-256.

    A slow hash protects passwords, which can be guessed; a token has 256 random bits.
    """
    return hashlib.sha256(text.encode()).hexdigest()


def looks_like_a_token(text: str) -> bool:
    """Returns whether a text has the form of a token."""
    return _SHAPE.fullmatch(text) is not None
