"""`kintune uploads`: list or delete the models and the sets of inputs that were uploaded to a service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

import click
import msgspec

from kintune.cli.document import JsonTarget, echo, json_option, write_document
from kintune.cli.remote import CommandClient, service_options
from kintune.cli.widths import output_width
from kintune.errors import InputError
from kintune.terminal.formatting import count
from kintune.terminal.table import Column, table_lines

__all__ = ["UploadsDocument", "command"]

_MODEL, _INPUTS = "model", "inputs"
_MOST = 100_000  # of a kind
_COLUMNS = (
    Column("number", right=True),
    Column("kind"),
    Column("name", yields=True),
    Column("size", right=True),
    Column("kept until", optional=True),
    Column("notes", yields=True),
)


class UploadsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `kintune uploads --json`: models and sets of inputs as the REST API has them.

    `storage_mb` is what all take together with the results of jobs, which take `results_mb`, and `most_mb` what they
    may; `deleted` are the numbers of those that were.
    """

    schema_version: int = 1
    models: list[dict[str, Any]]
    inputs: list[dict[str, Any]]
    storage_mb: float
    results_mb: float
    most_mb: float
    deleted: tuple[int, ...]


@click.command("uploads", short_help="List or delete your uploads at a service.")
@service_options
@click.option(
    "--delete",
    "deleted",
    type=click.IntRange(min=1),
    multiple=True,
    metavar="NUMBER",
    help="Delete the model or the set of inputs with this number first; can be repeated.",
)
@json_option
def command(token: str | None, service: str | None, deleted: tuple[int, ...], json_target: JsonTarget) -> None:
    """List your models and sets of inputs at a service, newest first, and how much they take of what they may.

    Results of jobs count as well; they stay when their model is deleted.  What a job needs that has not ended cannot be
    deleted.
    """
    with CommandClient(service, token) as client:
        models, inputs = client.models(_MOST), client.inputs(_MOST)
        kinds = {each["id"]: kind for kind, found in ((_MODEL, models), (_INPUTS, inputs)) for each in found}
        if unknown := [number for number in deleted if number not in kinds]:
            raise InputError(f"there is no upload {unknown[0]}; leave --delete out to list yours")
        for number in dict.fromkeys(deleted):
            if kinds[number] == _MODEL:
                client.delete_model(number)
            else:
                client.delete_inputs(number)
        models, inputs = ([each for each in found if each["id"] not in deleted] for found in (models, inputs))
        user = client.user()
    document = UploadsDocument(
        models=models,
        inputs=inputs,
        storage_mb=user["used"]["storage_mb"],
        results_mb=user["used"].get("results_mb", 0.0),
        most_mb=user["quota"]["storage_mb"],
        deleted=tuple(dict.fromkeys(deleted)),
    )
    write_document(json_target, document)
    for line in _lines(document):
        echo(line, json_target)


def _lines(document: UploadsDocument) -> list[str]:
    rows = [*_rows(_MODEL, document.models), *_rows(_INPUTS, document.inputs)]
    rows.sort(key=lambda row: -int(row[0]))
    results = document.results_mb
    total = f"Your {'uploads and results' if results else 'uploads'} take {document.storage_mb:.1f} of "
    total += f"{document.most_mb:g} MB{f', of which {results:.1f} MB are results' if results else ''}."
    return [*(table_lines(_COLUMNS, rows, output_width()) if rows else []), total]


def _rows(kind: str, found: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    rows = []
    for each in found:
        problem = (each.get("findings") or {}).get("problem")
        notes = f"cannot be used: {problem}" if problem else ""
        size = count(each["size"], "B")
        rows.append([str(each["id"]), kind, str(each["name"]), size, _day(each["expires"]), notes])
    return rows


def _day(at: float | None) -> str:
    return "it is deleted" if at is None else datetime.fromtimestamp(at, timezone.utc).date().isoformat()
