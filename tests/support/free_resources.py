"""Whether a demand fits, found out without any index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kintune.core.stage import Demand
from kintune.scheduler.resources import Device, Host, Placement, Resource

__all__ = ["fits"]


def fits(there: Mapping[str, Resource], booked: Sequence[Placement], demand: Demand, home: str | None) -> bool:
    """Whether the resources that a stage needs are free, by looking at each of those that are `there`, by id."""

    def has_room(host: Resource | None, cores: int) -> bool:
        mine = [placement for placement in booked if isinstance(host, Host) and placement.host == host.id]
        return (
            isinstance(host, Host)
            and home in (None, host.id)
            and host.cores - sum(placement.cores for placement in mine) >= cores
            and host.memory_mb - sum(placement.memory_mb for placement in mine) >= demand.memory_mb
        )

    def takes(device: Resource) -> bool:
        if not isinstance(device, Device) or device.type != demand.device or device.host not in (None, *there):
            return False
        if home is not None and device.host not in (None, home):
            return False
        users = [placement for placement in booked if placement.device == device.id]
        if any(placement.exclusive for placement in users) or (demand.exclusive and users):
            return False
        if device.capacity is not None and len(users) >= device.capacity:
            return False
        cores = demand.cores
        if demand.exclusive and device.on_host_cores:
            host = there[device.host or ""]
            assert isinstance(host, Host)
            cores = max(cores, host.cores)
        if device.host is None:
            return not (cores or demand.memory_mb) or any(has_room(host, cores) for host in there.values())
        return has_room(there[device.host], cores)

    if demand.device is None:
        return any(has_room(host, demand.cores) for host in there.values())
    return any(takes(device) for device in there.values())
