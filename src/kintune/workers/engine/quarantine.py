"""Hosts and devices that keep failing are not used for a while: longer each time, until they have done an item."""

from __future__ import annotations

from collections.abc import Callable

from kintune.core.backoff import BackOff
from kintune.workers.engine.inventory import Inventory
from kintune.workers.engine.process_log import ProcessLog
from kintune.workers.engine.reactor import Reactor
from kintune.workers.engine.settings import EngineSettings

__all__ = ["Quarantine"]

_REASON = "quarantine"


class Quarantine:
    """Takes hosts and devices out of use, and gives them back.

    Only those that it was told of (`guard`) are ever taken: others must be able to do their work, now or later.
    """

    def __init__(
        self,
        inventory: Inventory,
        reactor: Reactor,
        log: ProcessLog,
        settings: EngineSettings,
        clock: Callable[[], float],
        taken: Callable[[str], None],
        given_back: Callable[[], None],
    ) -> None:
        """`taken` is told why a place was taken out of use; `given_back` is called when one can be used again."""
        self._inventory = inventory
        self._reactor = reactor
        self._log = log
        self._settings = settings
        self._clock = clock
        self._taken = taken
        self._given_back = given_back
        self._guarded: set[str] = set()
        self._losses: dict[str, int] = {}
        self._waits: dict[str, BackOff] = {}

    def guard(self, place: str) -> None:
        """Take this place out of use when it keeps failing, from now on."""
        self._guarded.add(place)

    def guards(self, place: str | None) -> bool:
        """Whether it is taken out of use when it keeps failing."""
        return place in self._guarded

    def did_well(self, place: str | None) -> None:
        """An item was done there: forget what went wrong before."""
        if place in self._guarded:
            self._losses.pop(place, None)
            self._waits.pop(place, None)

    def lost_an_item(self, place: str | None, cause: str) -> None:
        """A worker there died with an item; too many in a row take the place out of use."""
        if place is None or place not in self._guarded:
            return
        losses = self._losses[place] = self._losses.get(place, 0) + 1
        if losses >= self._settings.losses_in_a_row:
            self.isolate(place, f"{losses} items in a row were lost there, the last one since its worker {cause}")

    def isolate(self, place: str, cause: str) -> None:
        """Take the place out of use for a while, longer each time."""
        self._losses.pop(place, None)
        settings = self._settings
        wait = self._waits.setdefault(place, BackOff(settings.quarantine_s, settings.longest_quarantine_s)).next_wait()
        self._log.write("engine", f"{place} is left alone for {wait:g} s: {cause}")
        self._reactor.set_alarm((_REASON, place), self._clock() + wait, lambda: self._give_back(place))
        self._inventory.lose(place, cause, _REASON)
        self._taken(cause)

    def _give_back(self, place: str) -> None:
        self._log.write("engine", f"{place} is tried again")
        self._inventory.give_back(place, _REASON)
        self._given_back()
