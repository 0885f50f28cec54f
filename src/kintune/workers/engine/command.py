"""How a kind of child process is started, here or where somebody else keeps it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from kintune.wire.child import ResourceLimits

__all__ = ["AnyCommand", "Anywhere", "Command", "KeptCommand"]


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


class KeptCommand(msgspec.Struct, frozen=True):
    """One of our programs, to be started elsewhere, by the keeper of this name: `python -m module arguments`."""

    keeper: str
    module: str
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = {}
    limits: ResourceLimits = ResourceLimits()


class Anywhere(msgspec.Struct, frozen=True):
    """One of our programs, to be started on whichever host elsewhere has most room for it."""

    module: str
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = {}
    limits: ResourceLimits = ResourceLimits()

    def at(self, keeper: str) -> KeptCommand:
        """The same with the keeper of this name."""
        return KeptCommand(keeper, self.module, self.arguments, self.environment, self.limits)


AnyCommand: TypeAlias = Command | KeptCommand
"""How a process is started."""
