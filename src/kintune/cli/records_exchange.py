"""`kintune records export` and `import`: measurements to and from a file or a stock MetaSchedule database."""

from __future__ import annotations

import click
import msgspec

from kintune.cli.document import JsonTarget, echo, json_option, write_document
from kintune.cli.options import records_option
from kintune.cli.records import find_run
from kintune.files import check_readable, check_writable
from kintune.integrations.exchange import (
    Exported,
    TuningDatabase,
    absorb,
    export_metaschedule,
    gather,
    read_metaschedule,
)
from kintune.records import ImportSummary, Store, export_records, import_records
from kintune.terminal.formatting import counted

__all__ = [
    "ExchangePlace",
    "ImportDocument",
    "RecordsExportDocument",
    "choose_place",
    "export",
    "import_",
    "metaschedule_option",
]


metaschedule_option = click.option(
    "--metaschedule", metavar="DIR", help="A database of stock MetaSchedule, in place of FILE."
)


class ExchangePlace(msgspec.Struct, frozen=True):
    """A records file of Kintune, or the directory of a stock MetaSchedule database."""

    path: str
    is_stock: bool


def choose_place(file: str | None, metaschedule: str | None) -> ExchangePlace:
    """Return the place that was given.

    Raises:
        click.UsageError: none was given, or both.
    """
    if (file is None) == (metaschedule is None):
        raise click.UsageError("name one place: FILE, or --metaschedule DIR", click.get_current_context(silent=True))
    return ExchangePlace(file, False) if file is not None else ExchangePlace(str(metaschedule), True)


class RecordsExportDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `kintune records export --json`; `skipped` counts what was left out, by reason."""

    schema_version: int = 1
    records: str
    place: str
    measurements: int
    skipped: dict[str, int]


@click.command("export", short_help="Write measurements to a file.")
@click.argument("file", metavar="FILE", required=False)
@metaschedule_option
@click.option("--run", "run_id", metavar="RUN", help="Only the measurements of this run.  [default: all]")
@records_option
@json_option
def export(
    file: str | None, metaschedule: str | None, run_id: str | None, records: str | None, json_target: JsonTarget
) -> None:
    """Write all measurements to FILE, which 'kintune records import' reads on any machine.

    With --metaschedule, write a database of stock MetaSchedule instead.
    """
    place = choose_place(file, metaschedule)
    if not place.is_stock:
        check_writable(place.path, "the file")
    with Store.open(records, create=False) as store:
        where = store.where
        run = None if run_id is None else find_run(store, run_id).run_id
        exported = _export(store, place, run)
    document = RecordsExportDocument(
        records=where, place=place.path, measurements=exported.written, skipped=exported.skipped
    )
    write_document(json_target, document)
    echo(f"{place.path}: {counted(exported.written, 'measurement')}", json_target)
    for reason, count in sorted(exported.skipped.items()):
        echo(f"  left out {count}: {reason}", json_target)


def _export(store: Store, place: ExchangePlace, run_id: str | None) -> Exported:
    if place.is_stock:
        return export_metaschedule(place.path, gather(store, run_id))
    return Exported(export_records(store, place.path, run_id=run_id), {})


class ImportDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `kintune records import --json`.

    `added` measurements were new, `known` ones were not; `skipped` counts what cannot be used, by reason.  Of `earlier`
    ones no program is built until 'kintune records upgrade' has converted them.
    """

    schema_version: int = 1
    records: str
    place: str
    added: int
    known: int
    skipped: dict[str, int]
    earlier: int = 0


@click.command("import", short_help="Add the measurements in a file.")
@click.argument("file", metavar="FILE", required=False)
@metaschedule_option
@records_option
@json_option
def import_(file: str | None, metaschedule: str | None, records: str | None, json_target: JsonTarget) -> None:
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
        records=where,
        place=place.path,
        added=imported.added,
        known=imported.known,
        skipped=skipped,
        earlier=imported.earlier,
    )
    write_document(json_target, document)
    echo(f"{where}: {counted(imported.added, 'measurement')} added, {imported.known} known already", json_target)
    if imported.earlier:
        echo(f"  {imported.earlier} of earlier programs: 'kintune records upgrade' converts them", json_target)
    for reason, count in sorted(skipped.items()):
        echo(f"  left out {count}: {reason}", json_target)
