"""Device types, and facts that were measured of machines."""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import delete, insert, select

from kintune.core.device import Peak
from kintune.core.measurement_protocol import DeviceType
from kintune.errors import DamagedRecord, RecordsError
from kintune.records.database import Clock, Database, insert_or_keep
from kintune.records.integrity import OnDamage, refuse, sealed, verified
from kintune.records.schema import device_types, machine_facts

__all__ = ["DeviceRecords", "Fact"]

_PEAK = "peak"


class Fact(msgspec.Struct, frozen=True):
    """Something measured of a machine: `value` is JSON-like, `created` the time of day when it was noted."""

    key: str
    subject: str
    value: Any
    created: str


class DeviceRecords:
    """Device types by digest, and facts (a peak, a bandwidth) by key and subject (a device type's or host's digest)."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def add(self, device_type: DeviceType) -> str:
        """Stores the device type, and returns its digest."""
        text = msgspec.json.encode(device_type).decode()
        with self._database.transaction() as connection:
            insert_or_keep(connection, device_types, sealed(device_types, digest=device_type.digest, json=text))
        return device_type.digest

    def get(self, digest: str) -> DeviceType:
        """Returns the device type with this digest.

        Raises:
            RecordsError: there is none.
            DamagedRecord: its row changed.
        """
        with self._database.snapshot() as connection:
            for row in verified(
                device_types, connection.execute(select(device_types).where(device_types.c.digest == digest))
            ):
                return msgspec.json.decode(row["json"], type=DeviceType)
        raise RecordsError(f"records: no device type {digest}")

    def list(self, on_damage: OnDamage = refuse) -> tuple[DeviceType, ...]:
        """All device types that anything was measured on, by digest."""
        with self._database.snapshot() as connection:
            rows = connection.execute(select(device_types).order_by(device_types.c.digest))
            return tuple(
                msgspec.json.decode(row["json"], type=DeviceType) for row in verified(device_types, rows, on_damage)
            )

    def note_fact(self, key: str, subject: str, value: object) -> None:
        """Stores a fact in place of the former one under the same key and subject."""
        row = sealed(
            machine_facts,
            key=key,
            subject=subject,
            json=msgspec.json.encode(value).decode(),
            created=self._clock(),
        )
        same = (machine_facts.c.key == key) & (machine_facts.c.subject == subject)
        with self._database.transaction() as connection:
            connection.execute(delete(machine_facts).where(same))
            connection.execute(insert(machine_facts).values(**row))

    def fact(self, key: str, subject: str) -> Fact | None:
        """Returns the fact under this key and subject, or None.

        Raises:
            DamagedRecord: its row changed.
        """
        same = (machine_facts.c.key == key) & (machine_facts.c.subject == subject)
        with self._database.snapshot() as connection:
            for row in verified(machine_facts, connection.execute(select(machine_facts).where(same))):
                return Fact(row["key"], row["subject"], msgspec.json.decode(row["json"]), row["created"])
        return None

    def peak(self, device_type: str) -> Peak | None:
        """Returns the peak of a device type (its digest); None when it was not measured or cannot be read."""
        try:
            fact = self.fact(_PEAK, device_type)
            return None if fact is None else msgspec.convert(fact.value, Peak)
        except (DamagedRecord, msgspec.ValidationError):
            return None

    def note_peak(self, device_type: str, peak: Peak) -> None:
        """Stores the peak of a device type (its digest) in place of an earlier one."""
        self.note_fact(_PEAK, device_type, msgspec.to_builtins(peak))
