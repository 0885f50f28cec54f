"""`kintune records check`: look for damage."""

from __future__ import annotations

import click
import msgspec

from kintune.cli.document import JsonTarget, echo, json_option, write_document
from kintune.cli.options import records_option
from kintune.records import Damage, Store

__all__ = ["CheckDocument", "command"]


class CheckDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `kintune records check --json`; sound records have no `damage`."""

    schema_version: int = 1
    records: str
    damage: tuple[Damage, ...]


@click.command("check", short_help="Look for damage.")
@records_option
@json_option
def command(records: str | None, json_target: JsonTarget) -> int:
    """Read all records and name what is damaged.  The exit code is 1 when anything is."""
    with Store.open(records, create=False, verify=False) as store:
        where = store.where
        damage = tuple(Damage(str(one.table), one.id, one.problem) for one in store.check())
    write_document(json_target, CheckDocument(records=where, damage=damage))
    for one in damage:
        echo(f"{one.table} {one.id}: {one.problem}", json_target)
    echo(f"{where}: {'sound' if not damage else f'{len(damage)} damaged'}", json_target)
    return 1 if damage else 0
