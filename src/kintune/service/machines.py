"""The machines that work for this service, and the types of their devices.

A machine is known by its token and its identity; a device type is defined by the first device of that type.
"""

from __future__ import annotations

import math

import msgspec
from sqlalchemy import delete, insert, select, update

from kintune.core.device import DeviceDescription
from kintune.errors import InputError
from kintune.records.database import Database
from kintune.service.access import NotFound
from kintune.service.audit_log import AuditLog
from kintune.service.database import plain
from kintune.service.job_request import TYPE_NAME
from kintune.service.schema import device_types, machines, tokens
from kintune.wire.channel import UNREADABLE
from kintune.workers.fleet.messages import Join, OfferedDevice

__all__ = ["DeviceTypes", "MachineOffer", "MachineRegistry", "RegisteredMachine", "machines_in"]
_MOST_ABOUT = 1 << 16  # bytes


class MachineOffer(msgspec.Struct, frozen=True):
    """What a machine brings: cores for builds, and devices by name with their types."""

    cores: int
    memory_mb: int
    devices: dict[str, str]


class RegisteredMachine(msgspec.Struct, frozen=True):
    """A machine that has joined at least once; `joined` is when it did so last."""

    name: str
    token: int
    identity: str
    offer: MachineOffer
    joined: float


class DeviceTypes:
    """The types of devices that machines elsewhere have brought, by name; each is defined by its first device."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def all(self) -> dict[str, DeviceDescription]:
        """All types, by name."""
        with self._database.snapshot() as connection:
            rows = connection.execute(select(device_types).order_by(device_types.c.name)).all()
        return {row.name: msgspec.json.decode(row.about, type=DeviceDescription) for row in rows}

    def forget(self, name: str) -> None:
        """Removes a type; the next device of this name defines it anew.

        Raises:
            NotFound: there is no such type.
        """
        with self._database.transaction() as connection:
            if not connection.execute(delete(device_types).where(device_types.c.name == name)).rowcount:
                raise NotFound(f"there is no type of devices {name[:64]!r}")

    def get(self, name: str) -> DeviceDescription | None:
        """Returns the description of a type; None if there is no such type."""
        with self._database.snapshot() as connection:
            row = connection.execute(select(device_types.c.about).where(device_types.c.name == name)).one_or_none()
        return None if row is None else msgspec.json.decode(row.about, type=DeviceDescription)

    def machine(self, name: str) -> str | None:
        """Returns the machine whose device defined a type; None if there is no such type."""
        with self._database.snapshot() as connection:
            return connection.scalar(select(device_types.c.machine).where(device_types.c.name == name))

    def put(self, name: str, machine: str, about: DeviceDescription, now: float) -> None:
        """Adds or replaces a type, as defined by a device of this machine; `now` is in seconds since 1970."""
        row = {"machine": machine, "about": msgspec.json.encode(about).decode(), "created": now}
        with self._database.transaction() as connection:
            known = connection.scalar(select(device_types.c.name).where(device_types.c.name == name))
            if known is None:
                connection.execute(insert(device_types).values(name=name, **row))
            else:
                connection.execute(update(device_types).where(device_types.c.name == name).values(**row))


class MachineRegistry:
    """Machines by name, types of devices by name; `now` is an argument, in seconds since 1970.

    A token belongs to the first machine that joins with it, a name to the first token that is used under it, and a type
    is defined by its first device.
    """

    def __init__(
        self, database: Database, compiler: str, own: frozenset[str] = frozenset(), alike: float = 1.5
    ) -> None:
        """`compiler` is the service's own; `own` has the names of types that only the service's own device may have.

        Devices are of one type only if the reference kernel takes less than `alike` times as long on one as on another.
        """
        self._database = database
        self._audit_log = AuditLog(database)
        self._types = DeviceTypes(database)
        self._compiler = compiler
        self._own = own
        self.alike = alike

    def admit(self, token: int, join: Join, now: float) -> list[DeviceDescription]:
        """Registers a machine; returns the description of the type of each of its devices.

        Raises:
            InputError: the machine may not join like this; nothing has changed then.
        """
        with self._database.transaction() as connection:
            mine = connection.execute(select(machines).where(machines.c.token == token)).one_or_none()
            if mine is not None and mine.identity != join.identity:
                raise InputError(
                    f"this token belongs to the machine {mine.name!r}, which is another one; make a token for this one"
                )
            if mine is not None and mine.name != join.name:
                raise InputError(f"this token belongs to the machine {mine.name!r}; join with that name")
            types = self.recognise(join, now)
            row = {
                "token": token,
                "identity": join.identity,
                "offer": msgspec.json.encode(_offer(join)).decode(),
                "joined": now,
            }
            named = connection.execute(select(machines).where(machines.c.name == join.name)).one_or_none()
            if named is None:
                connection.execute(insert(machines).values(name=join.name, **row))
                self._audit_log.note(now, "machine joins", join.name, details={"token": token})
            else:
                if named.token != token and not self._is_revoked(named.token):
                    raise InputError(
                        f"there is a machine {join.name!r}, with another token; choose another name, or revoke that one"
                    )
                connection.execute(update(machines).where(machines.c.name == join.name).values(**row))
            return types

    def recognise(self, join: Join, now: float) -> list[DeviceDescription]:
        """Returns the descriptions of the types of a machine's devices, for a machine that a cluster has let in.

        Raises:
            InputError: a device is not of the type that it is called.
        """
        with self._database.transaction():
            return [self._type(device, join.name, now) for device in join.devices]

    def _type(self, device: OfferedDevice, machine: str, now: float) -> DeviceDescription:
        try:
            about = msgspec.msgpack.decode(device.about, type=DeviceDescription)
        except UNREADABLE as error:
            raise InputError(f"device {device.name}: its description is invalid: {error}") from error
        if device.type in self._own or not TYPE_NAME.fullmatch(device.type):
            raise InputError(f"device {device.name}: its type cannot be called {device.type[:64]!r}; name another one")
        if about.compiler != self._compiler:
            raise InputError(
                f"this machine compiles with {about.compiler}, the service with {self._compiler}; install the same"
            )
        if len(device.about) > _MOST_ABOUT or about.pulse_us < 0 or not _survives_json(about):
            raise InputError(f"device {device.name}: what it says of itself makes no sense")
        known = self._types.get(device.type)
        if known is None:
            self._types.put(device.type, machine, about, now)
            return about
        is_faster = 0 < about.pulse_us * self.alike <= known.pulse_us and not _unlike(about, known, math.inf)
        if is_faster and self._types.machine(device.type) == machine:  # it was throttled or shared when it came first
            known = msgspec.structs.replace(known, pulse_us=about.pulse_us)
            self._types.put(device.type, machine, known, now)
        if why := _unlike(about, known, self.alike):
            raise InputError(f"device {device.name} is no {device.type!r}: {why}; name another type")
        if known.device_type != about.device_type:  # the service measures in another way than before
            newer = msgspec.structs.replace(about, pulse_us=known.pulse_us or about.pulse_us)
            self._types.put(device.type, machine, newer, now)
            return newer
        return known

    def _is_revoked(self, token: int) -> bool:
        with self._database.snapshot() as connection:
            return connection.scalar(select(tokens.c.revoked).where(tokens.c.id == token)) is not None


def machines_in(database: Database) -> list[RegisteredMachine]:
    """All machines that have joined, by name."""
    with database.snapshot() as connection:
        rows = connection.execute(select(machines).order_by(machines.c.name)).all()
    return [_machine(plain(row)) for row in rows]


def _survives_json(about: DeviceDescription) -> bool:
    """Whether it can be read again from the database; JSON has neither NaN nor infinities."""
    try:
        msgspec.json.decode(msgspec.json.encode(about), type=DeviceDescription)
    except UNREADABLE:
        return False
    return True


def _unlike(about: DeviceDescription, known: DeviceDescription, alike: float) -> str:
    """Returns why two devices are not of one type; "" if they are."""
    one, other = about.device_type, known.device_type
    for what, mine, theirs in (
        ("processor", one.model, other.model),
        ("instruction set", ", ".join(one.isa), ", ".join(other.isa)),
        ("number of threads", one.threads, other.threads),
        ("target", one.target, other.target),
    ):
        if mine != theirs:
            return f"its {what} is {mine or 'none'}, and that of those {theirs or 'none'}"
    if about.pulse_us and known.pulse_us:
        ratio = about.pulse_us / known.pulse_us
        if not 1 / alike < ratio < alike:
            return f"the reference kernel takes {ratio:.2f} times as long on it as on those"
    return ""


def _offer(join: Join) -> MachineOffer:
    return MachineOffer(join.cores, join.memory_mb, {device.name: device.type for device in join.devices})


def _machine(row: dict[str, object]) -> RegisteredMachine:
    return msgspec.convert({**row, "offer": msgspec.json.decode(str(row["offer"]))}, RegisteredMachine)
