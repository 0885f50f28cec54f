"""`kintune service machines`."""

from __future__ import annotations

import time
from datetime import datetime, timezone

import click
import msgspec

from kintune.cli.document import JsonTarget, echo, json_option, write_document
from kintune.cli.service.place import data_option, database_at
from kintune.core.device import DeviceDescription
from kintune.service.audit_log import AuditLog
from kintune.service.device_types import DeviceTypes
from kintune.service.machines import RegisteredMachine, machines_in

__all__ = ["MachinesDocument", "forget_type", "list_machines"]


class MachinesDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `kintune service machines --json`; `types` are the types of devices by name."""

    schema_version: int = 1
    machines: list[RegisteredMachine]
    types: dict[str, DeviceDescription]


@click.command("machines", short_help="List the machines that have joined, and their devices' types.")
@data_option
@json_option
def list_machines(data: str, json_target: JsonTarget) -> None:
    """List the machines that have joined so far, and what types of devices they have brought."""
    with database_at(data) as database:
        machines, types = machines_in(database), DeviceTypes(database).all()
    write_document(json_target, MachinesDocument(machines=machines, types=types))
    for machine in machines:
        offer = machine.offer
        brings = [f"{offer.cores} cores to build on"] if offer.cores else []
        brings += [f"{name} (a {type})" for name, type in offer.devices.items()]
        joined = datetime.fromtimestamp(machine.joined, timezone.utc).isoformat(" ", "minutes")
        echo(f"{machine.name:24} token {machine.token:<4} joined last {joined[:16]}  {', '.join(brings)}", json_target)
    for name, about in types.items():
        kind = about.device_type
        echo(f"{name:24} {kind.model}, {kind.threads} threads, {' '.join(kind.isa) or 'no extensions'}", json_target)


@click.command("forget-type", short_help="Let the next device say what those of a type are.")
@click.argument("name")
@data_option
def forget_type(name: str, data: str) -> None:
    """Forget what devices of the type NAME are: the next one that joins says it anew.

    Start `kintune device start` on the boards of that type again afterwards: they are measured only then.
    """
    with database_at(data) as database, database.transaction():
        DeviceTypes(database).forget(name)
        AuditLog(database).note(time.time(), "forget type", name)
    click.echo(f"Forgot what a {name} is.")
