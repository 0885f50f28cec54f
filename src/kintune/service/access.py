"""Users as the service sees them: scopes, quotas, and the errors of requests that lack a permission.  Pure."""

from __future__ import annotations

import math
from enum import Enum

import msgspec

from kintune.errors import InputError, KintuneError

__all__ = ["TAKES_A_TOKEN", "Forbidden", "Gone", "NotFound", "Quota", "QuotaSpent", "Scope", "Unauthorized", "Visitor"]

TAKES_A_TOKEN = "this takes a token: send it as 'Authorization: Bearer kt_...'"
"""The message to a request that has no token."""


class Unauthorized(KintuneError):
    """The request has no valid token: none, an unknown one, an expired or a revoked one."""


class Forbidden(KintuneError):
    """The user is known, and may not do what was asked."""


class QuotaSpent(Forbidden):
    """A quota is used up that becomes free with time: the same request may do `retry_after_s` later."""

    def __init__(self, said: str, retry_after_s: float) -> None:
        super().__init__(f"{said}; try again in about {_duration(retry_after_s)}")
        self.retry_after_s = retry_after_s


def _duration(seconds: float) -> str:
    minutes = math.ceil(seconds / 60)
    return "a minute" if minutes <= 1 else f"{minutes} minutes" if minutes < 120 else f"{math.ceil(minutes / 60)} hours"


class NotFound(InputError):
    """There is no such thing, or it belongs to another user; the message does not say which."""


class Gone(NotFound):
    """There was such a thing, and it was removed."""


class Scope(str, Enum):
    """What a token is for.  `ADMIN` includes `SUBMIT`, and that `READ`; with `MACHINE` a machine may join."""

    READ = "read"
    SUBMIT = "submit"
    ADMIN = "admin"
    MACHINE = "machine"

    def covers(self, other: Scope) -> bool:
        """Whether this scope allows what `other` allows."""
        if Scope.MACHINE in (self, other):
            return self is other
        order = (Scope.READ, Scope.SUBMIT, Scope.ADMIN)
        return order.index(self) >= order.index(other)


class Quota(msgspec.Struct, frozen=True):
    """What a user may use: jobs that are not over, the size of one upload, minutes of tuning within a day, and the
    size of all uploads and results together.
    """

    jobs: int = 20
    upload_mb: int = 2048
    minutes: float = 1440.0
    storage_mb: int = 20_000


class Visitor(msgspec.Struct, frozen=True):
    """Who sends a request: a user with a scope.  `token` is None at this machine while nobody has a token."""

    user: int
    name: str
    scope: Scope
    token: int | None
    quota: Quota = Quota()

    def require(self, scope: Scope) -> None:
        """Check that the visitor's scope covers this one.

        Raises:
            Forbidden: it does not.
        """
        if not self.scope.covers(scope):
            raise Forbidden(f"this token may {self.scope.value}; what was asked takes one that may {scope.value}")

    @property
    def may_submit(self) -> bool:
        """Whether they may change something."""
        return self.scope.covers(Scope.SUBMIT)

    def sees(self, owner: int) -> bool:
        """Whether the visitor may see what belongs to this owner."""
        return owner == self.user or self.scope is Scope.ADMIN
