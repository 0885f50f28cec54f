"""`kintune records upgrade`: measurements of earlier versions of programs become measurements of today's."""

from __future__ import annotations

import click
import msgspec

from kintune.cli.document import JsonTarget, echo, json_option, write_document
from kintune.cli.options import records_option
from kintune.records import Store
from kintune.terminal.formatting import counted
from kintune.transfer.upgrade import upgrade_records

__all__ = ["UpgradeDocument", "command"]


class UpgradeDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `kintune records upgrade --json`: measurements by what became of them.

    `converted` are of a program of today now, `training` are samples for cost models alone, `dropped` are gone, and
    `current` were of today already.
    """

    schema_version: int = 1
    records: str
    converted: int
    training: int
    dropped: int
    current: int


@click.command("upgrade", short_help="Convert measurements of earlier programs.")
@records_option
@json_option
def command(records: str | None, json_target: JsonTarget) -> None:
    """Convert measurements of programs of an earlier Kintune, where this one writes the same by the same names.

    Of the others, those with features stay as samples for cost models, and no program is built from them; those
    without are dropped, as are those whose converted program was measured already.  Records may be upgraded as often
    as you like.
    """
    with Store.open(records, create=False) as store:
        where, found = store.where, upgrade_records(store)
    document = UpgradeDocument(
        records=where,
        converted=found.converted,
        training=found.training,
        dropped=found.dropped,
        current=found.current,
    )
    write_document(json_target, document)
    echo(
        f"{where}: {counted(found.converted, 'measurement')} converted, {found.training} kept for training alone, "
        f"{found.dropped} dropped, {found.current} as they were",
        json_target,
    )
