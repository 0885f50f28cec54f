"""`kintune records import`: add what a file holds."""

from __future__ import annotations

import click
import msgspec

from kintune.cli.document import JsonTarget, echo, json_option, write_document
from kintune.cli.options import records_option
from kintune.files import check_readable
from kintune.records import Store, import_records

__all__ = ["ImportDocument", "command"]


class ImportDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `kintune records import --json`: measurements that were new, and those known already."""

    schema_version: int = 1
    records: str
    file: str
    added: int
    known: int


@click.command("import", short_help="Add what a file holds.")
@click.argument("file", metavar="FILE")
@records_option
@json_option
def command(file: str, records: str | None, json_target: JsonTarget) -> None:
    """Add the measurements in FILE, written by 'kintune records export': all of them, or none if any is damaged."""
    source = check_readable(file, "the file")
    with Store.open(records) as store:
        where = store.where
        imported = import_records(store, source)
    document = ImportDocument(records=where, file=str(source), added=imported.added, known=imported.known)
    write_document(json_target, document)
    echo(f"{where}: {imported.added} measurements added, {imported.known} known already", json_target)
