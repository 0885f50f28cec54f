"""`kintune records check`: look for damage, and remove it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click
import msgspec

from kintune.cli.document import JsonTarget, echo, json_option, write_document
from kintune.cli.options import records_option
from kintune.records import Damage, Store

__all__ = ["CheckDocument", "command"]


class CheckDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `kintune records check --json`.

    `damage` is what was found; `removed` says whether it was taken out, and `left` is what no removal can help.
    """

    schema_version: int = 1
    records: str
    damage: tuple[Damage, ...]
    removed: bool
    left: tuple[Damage, ...]


@click.command("check", short_help="Look for damage, and remove it if told so.")
@click.option("--remove", is_flag=True, help="Remove what is damaged, with all that depends on it.")
@records_option
@json_option
def command(remove: bool, records: str | None, json_target: JsonTarget) -> int:
    """Read all records and name what is damaged.  The exit code is 1 when damage is left."""
    with Store.open(records, create=False, verify=False) as store:
        where = store.where
        damage = _plain(store.check())
        left = _plain(store.remove_damage()) if remove and damage else damage
    write_document(json_target, CheckDocument(records=where, damage=damage, removed=remove, left=left))
    for one in damage:
        state = "left" if one in left else "removed"
        echo(f"{one.table} {one.id}: {one.problem} ({state})", json_target)
    echo(_conclude(where, damage, left), json_target)
    return 1 if left else 0


def _plain(damage: Iterable[Damage]) -> tuple[Damage, ...]:
    """The same with names as plain strings, where the database's own kind of string stood."""
    return tuple(Damage(str(one.table), one.id, one.problem) for one in damage)


def _conclude(where: str, damage: Sequence[Damage], left: Sequence[Damage]) -> str:
    if not damage:
        return f"{where}: sound"
    if not left:
        return f"{where}: {len(damage)} damaged, all removed"
    return f"{where}: {len(left)} damaged; 'kintune records check --remove' takes out what can be taken out"
