"""`kintune records import`: add what a file holds."""

from __future__ import annotations

import click
import msgspec

from kintune.cli.document import JsonTarget, echo, json_option, write_document
from kintune.cli.options import records_option
from kintune.cli.records.place import choose_place, metaschedule_option
from kintune.files import check_readable
from kintune.integrations.exchange import TuningDatabase, absorb, read_metaschedule
from kintune.records import ImportSummary, Store, import_records

__all__ = ["ImportDocument", "command"]


class ImportDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `kintune records import --json`.

    `added` measurements were new, `known` ones were not; `skipped` counts what cannot be used, by reason.
    """

    schema_version: int = 1
    records: str
    place: str
    added: int
    known: int
    skipped: dict[str, int]


@click.command("import", short_help="Add what a file holds.")
@click.argument("file", metavar="FILE", required=False)
@metaschedule_option
@records_option
@json_option
def command(file: str | None, metaschedule: str | None, records: str | None, json_target: JsonTarget) -> None:
    """Add the measurements in FILE, written by 'kintune records export': all of them, or none if any is damaged.

    With --metaschedule, add those of a database of stock MetaSchedule.  They were taken under other conditions, and
    are kept apart from measurements of our own.
    """
    place = choose_place(file, metaschedule)
    database: TuningDatabase | None = None
    if place.is_stock:
        database = read_metaschedule(place.path)
    else:
        check_readable(place.path, "the file")
    with Store.open(records) as store:
        where = store.where
        imported: ImportSummary = import_records(store, place.path) if database is None else absorb(store, database)
    skipped = {} if database is None else database.skipped
    document = ImportDocument(
        records=where, place=place.path, added=imported.added, known=imported.known, skipped=skipped
    )
    write_document(json_target, document)
    echo(f"{where}: {imported.added} measurements added, {imported.known} known already", json_target)
    for reason, count in sorted(skipped.items()):
        echo(f"  left out {count}: {reason}", json_target)
