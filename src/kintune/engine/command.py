"""How a kind of child process is started."""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec

from kintune.wire.child import ResourceLimits

__all__ = ["Command"]


class Command(msgspec.Struct, frozen=True):
    """A program that talks to the front: the engine appends `--fd N` to `argv`.

    `environment` is laid over that of the front.  `limits` are laid on the process by itself, before anything else.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str] = {}
    limits: ResourceLimits = ResourceLimits()

    def full_environment(self) -> dict[str, str]:
        """The whole environment of the process."""
        return {**os.environ, **self.environment, **self.limits.to_environment()}
