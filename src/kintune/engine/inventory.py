"""What the scheduler was told of hosts and devices: each joins once, may be lost, and may come back."""

from __future__ import annotations

from collections.abc import Callable

from kintune.errors import EngineError
from kintune.scheduler.events import Event, ResourceBack, ResourceJoined, ResourceLost
from kintune.scheduler.resources import Device, Resource

__all__ = ["Inventory"]


class Inventory:
    """Tells the scheduler what comes and goes, and nothing twice."""

    def __init__(self, tell: Callable[[Event], None], clock: Callable[[], float]) -> None:
        self._tell = tell
        self._clock = clock
        self._resources: dict[str, Resource] = {}
        self._lost: set[str] = set()

    def why_not(self, resource: Resource) -> str | None:
        """Why a host or a device cannot join: one of this name is there, or was there and was another one."""
        known = self._resources.get(resource.id)
        if known is not None and resource.id not in self._lost:
            return f"there is a {resource.id!r} already"
        if known not in (None, resource):
            return f"{resource.id!r} comes back as something else: it was {known}, and is {resource}"
        return None

    def join(self, resource: Resource) -> None:
        """A host or a device can be used, for the first time or again.

        Raises:
            EngineError: it cannot join.
        """
        if (why := self.why_not(resource)) is not None:
            raise EngineError(why)
        if resource.id not in self._resources:
            self._resources[resource.id] = resource
            self._tell(ResourceJoined(self._clock(), resource))
        else:
            self._lost.discard(resource.id)
            self._tell(ResourceBack(self._clock(), resource.id))

    def lose(self, id: str, cause: str) -> None:
        """It cannot be used for now; what is unknown or lost already is left alone."""
        if id in self._resources and id not in self._lost:
            self._lost.add(id)
            self._tell(ResourceLost(self._clock(), id, cause))

    def can_do_without(self, device: str) -> bool:
        """Whether another device of its type is left."""
        lost = self._resources.get(device)
        return isinstance(lost, Device) and any(
            isinstance(other, Device) and other.type == lost.type and other.id not in (device, *self._lost)
            for other in self._resources.values()
        )
