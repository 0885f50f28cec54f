"""What the scheduler was told of hosts and devices: each joins once, may be lost, and may come back, also changed."""

from __future__ import annotations

from collections.abc import Callable

from kintune.errors import EngineError
from kintune.scheduler.events import Event, ResourceBack, ResourceJoined, ResourceLost
from kintune.scheduler.resources import Device, Host, Resource

__all__ = ["Inventory"]


_GONE = "gone"  # the usual reason: it is not there


class Inventory:
    """Tells the scheduler which hosts and devices come and go, each change once.

    One of them may be unusable for several reasons at once; it is back when none is left.  A host may come back with
    other cores or another memory, a device with another type.
    """

    def __init__(self, tell: Callable[[Event], None], clock: Callable[[], float]) -> None:
        self._tell = tell
        self._clock = clock
        self._resources: dict[str, Resource] = {}
        self._told: dict[str, Resource] = {}  # what the scheduler knows
        self._absent: dict[str, dict[str, str]] = {}  # why each cannot be used: causes by reason

    def why_not(self, resource: Resource) -> str | None:
        """Returns why a host or a device cannot join, or None: its id is in use, or was that of another kind."""
        known = self._resources.get(resource.id)
        if known is not None and _GONE not in self._absent.get(resource.id, ()):
            return f"there is a {resource.id!r} already"
        if known is not None and _kind(known) != _kind(resource):
            return (
                f"{resource.id!r} comes back as something else: it was {known}, and is {resource}; give it another name"
            )
        return None

    def join(self, resource: Resource) -> None:
        """Tell the scheduler that a host or a device can be used, for the first time or again.

        Raises:
            EngineError: it cannot join.
        """
        if (why := self.why_not(resource)) is not None:
            raise EngineError(why)
        self._resources[resource.id] = resource
        if resource.id not in self._told:
            self._tell_of(resource)
        else:
            self.give_back(resource.id)

    def lose(self, id: str, cause: str, reason: str = _GONE) -> None:
        """Note one more reason why it cannot be used; the scheduler is told of the first.  Unknown ids are ignored."""
        if id in self._resources:
            reasons = self._absent.setdefault(id, {})
            reasons[reason] = cause
            if len(reasons) == 1:
                self._tell(ResourceLost(self._clock(), id, cause))

    def give_back(self, id: str, reason: str = _GONE) -> None:
        """Remove one reason why it could not be used; the scheduler is told once none is left."""
        reasons = self._absent.get(id, {})
        if reason in reasons:
            del reasons[reason]
            if not reasons:
                del self._absent[id]
                self._tell_of(self._resources[id])

    def _tell_of(self, resource: Resource) -> None:
        """Tell the scheduler that it can be used."""
        known = self._told.get(resource.id) == resource
        self._told[resource.id] = resource
        now = self._clock()
        self._tell(ResourceBack(now, resource.id) if known else ResourceJoined(now, resource))

    def is_usable(self, id: str) -> bool:
        """Whether it has joined, and no reason against its use is noted."""
        return id in self._resources and id not in self._absent

    def count(self, type: str) -> int:
        """How many devices of a type can be used."""
        return sum(
            isinstance(known, Device) and known.type == type and known.id not in self._absent
            for known in self._resources.values()
        )

    def why_none(self, type: str) -> str:
        """Why no device of a type can be used, with the devices' names; "" where one can, or none has joined yet."""
        if self.count(type):
            return ""
        known = (each for each in self._resources.values() if isinstance(each, Device) and each.type == type)
        return "; ".join(f"{each.id}: {cause}" for each in known for cause in self._absent[each.id].values())

    def can_do_without(self, device: str) -> bool:
        """Whether another usable device of its type is left; false for a host."""
        lost = self._resources.get(device)
        return isinstance(lost, Device) and any(
            isinstance(other, Device) and other.type == lost.type and other.id not in (device, *self._absent)
            for other in self._resources.values()
        )


def _kind(resource: Resource) -> tuple[object, ...]:
    """Returns what a resource must stay, since others depend on it: a host, or a device at its place."""
    return (Device, *resource.place) if isinstance(resource, Device) else (Host,)
