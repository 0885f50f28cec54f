"""As what machines elsewhere may join: their devices' types, and what their workers are told."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from kintune.core.device import DeviceDescription
from kintune.errors import InputError
from kintune.service.machines import MachineRegistry
from kintune.workers.fleet.agent_registry import Admit, Admitted
from kintune.workers.fleet.messages import Join

__all__ = ["Admission", "OnJoin"]

_log = logging.getLogger(__name__)

OnJoin = Callable[[Join, Sequence[DeviceDescription]], None]
"""Told of a machine that joins, and what the types of its devices are; in whatever thread looks into the roll."""


class Admission:
    """Looks into the roll, and writes down who comes; `now` gives seconds since 1970."""

    def __init__(self, roll: MachineRegistry, joined: OnJoin, now: Callable[[], float]) -> None:
        self._roll = roll
        self._joined = joined
        self._now = now

    def with_token(self, token: int) -> Admit:
        """For a machine that comes with this token."""
        return lambda join: self._admit(join, lambda: self._roll.admit(token, join, self._now()))

    def of_a_cluster(self, join: Join) -> list[Admitted]:
        """For a machine that somebody else has let in: a node of a cluster."""
        return self._admit(join, lambda: self._roll.recognise(join, self._now()))

    def _admit(self, join: Join, look: Callable[[], list[DeviceDescription]]) -> list[Admitted]:
        try:
            types = look()
        except InputError as error:
            _log.warning("machine %s is turned away: %s", join.name, error)
            raise
        self._joined(join, types)
        return [Admitted(device.type, self._watched(about)) for device, about in zip(join.devices, types, strict=True)]

    def _watched(self, about: DeviceDescription) -> tuple[str, ...]:
        """What a device's worker is told, so that it notices when it is no longer what its type is."""
        if not about.pulse_us:
            return ()
        return ("--pulse-us", f"{about.pulse_us:g}", "--alike", f"{self._roll.alike:g}")
