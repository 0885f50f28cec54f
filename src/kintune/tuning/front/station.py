"""What a run is measured on, wherever that is."""

from __future__ import annotations

import msgspec

__all__ = ["Station"]


class Station(msgspec.Struct, frozen=True):
    """Devices of one type, as the scheduler knows it: `count` of them, each with `threads` cores of this `cpu`.

    `shared` says that there is one and that it is the host's own cores, so that nothing else runs while it measures.
    """

    device: str
    count: int
    threads: int
    cpu: str
    shared: bool = False
