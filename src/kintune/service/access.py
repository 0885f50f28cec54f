"""Who somebody is, and what they may do.  Pure."""

from __future__ import annotations

from enum import Enum

import msgspec

from kintune.errors import InputError, KintuneError

__all__ = ["TAKES_A_TOKEN", "Forbidden", "NotFound", "Quota", "Scope", "Unauthorized", "Visitor"]

TAKES_A_TOKEN = "this takes a token: send it as 'Authorization: Bearer kt_...'"
"""What somebody is told who comes without one."""


class Unauthorized(KintuneError):
    """Nobody knows who is asking: no token, an unknown one, an expired or a revoked one."""


class Forbidden(KintuneError):
    """It is known who is asking, and they may not."""


class NotFound(InputError):
    """There is no such thing, or it is somebody else's: who asks cannot tell."""


class Scope(str, Enum):
    """What a token is for.  `ADMIN` includes `SUBMIT`, and that `READ`; with `MACHINE` a machine may come to work."""

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
    """What somebody may use: jobs that are not over, the size of one upload, minutes of tuning within a day, and the
    size of all uploads together.
    """

    jobs: int = 20
    upload_mb: int = 2048
    minutes: float = 1440.0
    storage_mb: int = 20_000


class Visitor(msgspec.Struct, frozen=True):
    """Who is asking: a user with a scope, by a token (None: by being at this machine while nobody has one)."""

    user: int
    name: str
    scope: Scope
    token: int | None
    quota: Quota = Quota()

    def require(self, scope: Scope) -> None:
        """See that they may do what takes this scope.

        Raises:
            Forbidden: they may not.
        """
        if not self.scope.covers(scope):
            raise Forbidden(f"this token may {self.scope.value}; what was asked takes one that may {scope.value}")

    @property
    def may_submit(self) -> bool:
        """Whether they may change something."""
        return self.scope.covers(Scope.SUBMIT)

    def sees(self, owner: int) -> bool:
        """Whether something of this owner is theirs to see."""
        return owner == self.user or self.scope is Scope.ADMIN
