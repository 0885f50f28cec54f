"""The types of devices that machines elsewhere have brought, each as its first device was."""

from __future__ import annotations

import msgspec
from sqlalchemy import delete, insert, select, update

from kintune.core.device import DeviceDescription
from kintune.records.database import Database
from kintune.service.access import NotFound
from kintune.service.schema import device_types

__all__ = ["DeviceTypes"]


class DeviceTypes:
    """Types by name."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def all(self) -> dict[str, DeviceDescription]:
        """All types, by name."""
        with self._database.snapshot() as connection:
            rows = connection.execute(select(device_types).order_by(device_types.c.name)).all()
        return {row.name: msgspec.json.decode(row.about, type=DeviceDescription) for row in rows}

    def forget(self, name: str) -> None:
        """The next device of this type says anew what those are.  Raises NotFound."""
        with self._database.transaction() as connection:
            if not connection.execute(delete(device_types).where(device_types.c.name == name)).rowcount:
                raise NotFound(f"there is no type of devices {name[:64]!r}")

    def get(self, name: str) -> DeviceDescription | None:
        """What the devices of a type are; None if there is none of this name."""
        with self._database.snapshot() as connection:
            row = connection.execute(select(device_types.c.about).where(device_types.c.name == name)).one_or_none()
        return None if row is None else msgspec.json.decode(row.about, type=DeviceDescription)

    def put(self, name: str, machine: str, about: DeviceDescription, now: float) -> None:
        """The devices of this type are like that one of this machine."""
        row = {"machine": machine, "about": msgspec.json.encode(about).decode(), "created": now}
        with self._database.transaction() as connection:
            known = connection.scalar(select(device_types.c.name).where(device_types.c.name == name))
            if known is None:
                connection.execute(insert(device_types).values(name=name, **row))
            else:
                connection.execute(update(device_types).where(device_types.c.name == name).values(**row))
