"""`kintune records export`: write what was measured to a file."""

from __future__ import annotations

import click
import msgspec

from kintune.cli.document import JsonTarget, echo, json_option, write_document
from kintune.cli.options import records_option
from kintune.cli.records.show import find_run
from kintune.files import check_writable
from kintune.records import Store, export_records

__all__ = ["ExportDocument", "command"]


class ExportDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `kintune records export --json`."""

    schema_version: int = 1
    records: str
    file: str
    measurements: int


@click.command("export", short_help="Write what was measured to a file.")
@click.argument("file", metavar="FILE")
@click.option("--run", "run_id", metavar="RUN", help="Only what this run measured.  [default: everything]")
@records_option
@json_option
def command(file: str, run_id: str | None, records: str | None, json_target: JsonTarget) -> None:
    """Write what was measured to FILE, which 'kintune records import' reads on any machine."""
    target = check_writable(file, "the file")
    with Store.open(records, create=False) as store:
        where = store.where
        run = None if run_id is None else find_run(store, run_id).run_id
        measurements = export_records(store, target, run_id=run)
    write_document(json_target, ExportDocument(records=where, file=str(target), measurements=measurements))
    echo(f"{target}: {measurements} measurements", json_target)
