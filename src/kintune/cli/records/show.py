"""`kintune records show`: one run."""

from __future__ import annotations

import click
import msgspec

from kintune.cli.document import JsonTarget, echo, json_option, write_document
from kintune.cli.options import records_option
from kintune.cli.records.list import RunLine
from kintune.errors import InputError
from kintune.records import FailureCount, Run, Store
from kintune.terminal.quantities import clock

__all__ = ["ShowDocument", "command", "find_run"]


class ShowDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `kintune records show --json`; `measurements` were made by this run."""

    schema_version: int = 1
    run: RunLine
    model_digest: str
    seeds: dict[str, int]
    versions: dict[str, str]
    measurements: int
    failures: tuple[FailureCount, ...]


@click.command("show", short_help="Show one run.")
@click.argument("run_id", metavar="RUN")
@records_option
@json_option
def command(run_id: str, records: str | None, json_target: JsonTarget) -> None:
    """Show the run RUN: its id, or the beginning of it."""
    with Store.open(records, create=False) as store:
        run = find_run(store, run_id)
        measurements = len(store.measurements.find(run_id=run.run_id))
        failures = tuple(store.measurements.failures(run_id=run.run_id))
    line = RunLine.of(run)
    document = ShowDocument(
        run=line,
        model_digest=run.model_digest,
        seeds=run.seeds,
        versions=run.versions,
        measurements=measurements,
        failures=failures,
    )
    write_document(json_target, document)
    for said in _lines(document):
        echo(said, json_target)


def find_run(store: Store, start: str) -> Run:
    """The run whose id begins so; raises InputError unless there is exactly one (or one of just that id)."""
    found = [run for run in store.runs.list() if run.run_id.startswith(start)]
    exact = [run for run in found if run.run_id == start]
    if len(exact or found) == 1:
        return (exact or found)[0]
    if not found:
        raise InputError(f"{store.where}: there is no run {start}; 'kintune records list' names all")
    raise InputError(f"{store.where}: {len(found)} runs begin with {start}; write more of the id")


def _lines(document: ShowDocument) -> list[str]:
    run = document.run
    facts = {
        "run": run.run_id,
        "model": f"{run.model} ({document.model_digest or 'not imported yet'})",
        "state": run.state,
        "created": run.created,
        "updated": run.updated,
        "worked on": clock(run.active_seconds),
        "measurements": str(document.measurements),
        "seeds": ", ".join(f"{name} {seed}" for name, seed in document.seeds.items()) or "none",
        "versions": ", ".join(f"{name} {version}" for name, version in document.versions.items()) or "none",
    }
    failures = [f"{f.count:>5}  {f.status.value}: {f.cause}" for f in document.failures]
    return [f"{name:<13} {value}" for name, value in facts.items()] + (["failures", *failures] if failures else [])
