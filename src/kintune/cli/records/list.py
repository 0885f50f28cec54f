"""`kintune records list`: the runs."""

from __future__ import annotations

import click
import msgspec

from kintune.cli.document import JsonTarget, echo, json_option, write_document
from kintune.cli.options import records_option
from kintune.records import Counts, Run, Store
from kintune.terminal.quantities import clock

__all__ = ["ListDocument", "RunLine", "command"]


class RunLine(msgspec.Struct, frozen=True):
    """One run: its state, times of day, and the seconds in which it was worked on."""

    run_id: str
    model: str
    state: str
    created: str
    updated: str
    active_seconds: float

    @classmethod
    def of(cls, run: Run) -> RunLine:
        """What is said of a run."""
        return cls(run.run_id, run.model_name, run.state.value, run.created, run.updated, run.active_seconds)


class ListDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `kintune records list --json`; `damaged` runs are left out of `runs`."""

    schema_version: int = 1
    records: str
    counts: Counts
    runs: tuple[RunLine, ...]
    damaged: int


@click.command("list", short_help="List the runs.")
@records_option
@json_option
def command(records: str | None, json_target: JsonTarget) -> None:
    """List the runs, the latest first, and say how much the records hold."""
    damaged: list[object] = []
    with Store.open(records, create=False) as store:
        runs = tuple(RunLine.of(run) for run in store.runs.list(on_damage=damaged.append))
        counts, where, notice = store.counts(), store.where, store.notice
    write_document(json_target, ListDocument(records=where, counts=counts, runs=runs, damaged=len(damaged)))
    echo(f"{where}: {counts.runs} runs, {counts.workloads} workloads, {counts.measurements} measurements", json_target)
    if notice:
        echo(notice, json_target)
    if damaged:
        echo(f"{len(damaged)} runs are damaged; 'kintune records check' names them", json_target)
    for run in runs:
        spent = clock(run.active_seconds)
        echo(f"{run.run_id}  {run.created}  {run.state:<11} {spent:>8}  {run.model}", json_target)
