"""What the scheduler was told of hosts and devices: each joins once, may be lost, and may come back."""

from __future__ import annotations

from collections.abc import Callable

from kintune.errors import EngineError
from kintune.scheduler.events import Event, ResourceBack, ResourceJoined, ResourceLost
from kintune.scheduler.resources import Device, Resource

__all__ = ["Inventory"]


_GONE = "gone"  # the usual reason: it is not there


class Inventory:
    """Tells the scheduler which hosts and devices come and go, each change once.

    One of them may be unusable for several reasons at once; it is back when none is left.
    """

    def __init__(self, tell: Callable[[Event], None], clock: Callable[[], float]) -> None:
        self._tell = tell
        self._clock = clock
        self._resources: dict[str, Resource] = {}
        self._absent: dict[str, set[str]] = {}

    def why_not(self, resource: Resource) -> str | None:
        """Returns why a host or a device cannot join, or None: its id is in use, or was that of something else."""
        known = self._resources.get(resource.id)
        if known is not None and _GONE not in self._absent.get(resource.id, ()):
            return f"there is a {resource.id!r} already"
        if known not in (None, resource):
            return (
                f"{resource.id!r} comes back as something else: it was {known}, and is {resource}; "
                "give it another name, or start the service again"
            )
        return None

    def join(self, resource: Resource) -> None:
        """Tell the scheduler that a host or a device can be used, for the first time or again.

        Raises:
            EngineError: it cannot join.
        """
        if (why := self.why_not(resource)) is not None:
            raise EngineError(why)
        if resource.id not in self._resources:
            self._resources[resource.id] = resource
            self._tell(ResourceJoined(self._clock(), resource))
        else:
            self.give_back(resource.id)

    def lose(self, id: str, cause: str, reason: str = _GONE) -> None:
        """Note one more reason why it cannot be used; the scheduler is told of the first.  Unknown ids are ignored."""
        if id in self._resources:
            reasons = self._absent.setdefault(id, set())
            reasons.add(reason)
            if reasons == {reason}:
                self._tell(ResourceLost(self._clock(), id, cause))

    def give_back(self, id: str, reason: str = _GONE) -> None:
        """Remove one reason why it could not be used; the scheduler is told once none is left."""
        reasons = self._absent.get(id, set())
        if reason in reasons:
            reasons.discard(reason)
            if not reasons:
                del self._absent[id]
                self._tell(ResourceBack(self._clock(), id))

    def is_usable(self, id: str) -> bool:
        """Whether it has joined, and no reason against its use is noted."""
        return id in self._resources and id not in self._absent

    def count(self, type: str) -> int:
        """How many devices of a type can be used."""
        return sum(
            isinstance(known, Device) and known.type == type and known.id not in self._absent
            for known in self._resources.values()
        )

    def can_do_without(self, device: str) -> bool:
        """Whether another usable device of its type is left; false for a host."""
        lost = self._resources.get(device)
        return isinstance(lost, Device) and any(
            isinstance(other, Device) and other.type == lost.type and other.id not in (device, *self._absent)
            for other in self._resources.values()
        )
