"""`kintune records export`: write what was measured to a file."""

from __future__ import annotations

import click
import msgspec

from kintune.cli.document import JsonTarget, echo, json_option, write_document
from kintune.cli.options import records_option
from kintune.cli.records.place import ExchangePlace, choose_place, metaschedule_option
from kintune.cli.records.show import find_run
from kintune.files import check_writable
from kintune.integrations.exchange import Exported, export_metaschedule, gather
from kintune.records import Store, export_records

__all__ = ["ExportDocument", "command"]


class ExportDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `kintune records export --json`; `skipped` counts what was left out, by reason."""

    schema_version: int = 1
    records: str
    place: str
    measurements: int
    skipped: dict[str, int]


@click.command("export", short_help="Write what was measured to a file.")
@click.argument("file", metavar="FILE", required=False)
@metaschedule_option
@click.option("--run", "run_id", metavar="RUN", help="Only what this run measured.  [default: everything]")
@records_option
@json_option
def command(
    file: str | None, metaschedule: str | None, run_id: str | None, records: str | None, json_target: JsonTarget
) -> None:
    """Write what was measured to FILE, which 'kintune records import' reads on any machine.

    With --metaschedule, write a database of stock MetaSchedule instead.
    """
    place = choose_place(file, metaschedule)
    if not place.is_stock:
        check_writable(place.path, "the file")
    with Store.open(records, create=False) as store:
        where = store.where
        run = None if run_id is None else find_run(store, run_id).run_id
        exported = _export(store, place, run)
    document = ExportDocument(records=where, place=place.path, measurements=exported.written, skipped=exported.skipped)
    write_document(json_target, document)
    echo(f"{place.path}: {exported.written} measurements", json_target)
    for reason, count in sorted(exported.skipped.items()):
        echo(f"  left out {count}: {reason}", json_target)


def _export(store: Store, place: ExchangePlace, run_id: str | None) -> Exported:
    if place.is_stock:
        return export_metaschedule(place.path, gather(store, run_id))
    return Exported(export_records(store, place.path, run_id=run_id), {})
