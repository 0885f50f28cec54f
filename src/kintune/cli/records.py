"""`kintune records list`, `show` and `check`: the runs in the records, one run, and damaged rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click
import msgspec

from kintune.cli.document import JsonTarget, echo, json_option, write_document
from kintune.cli.options import records_option
from kintune.cli.widths import output_width
from kintune.core.report import FastestBaseline, RunReport
from kintune.errors import InputError
from kintune.records import Damage, FailureCount, RecordCounts, Run, RunState, Store
from kintune.terminal.comparison import share_of
from kintune.terminal.formatting import clock, counted, milliseconds
from kintune.terminal.table import Column, table_lines
from kintune.wire.channel import UNREADABLE

__all__ = [
    "CheckDocument",
    "ListDocument",
    "RunLine",
    "ShowDocument",
    "check",
    "find_run",
    "finished_report",
    "list_runs",
    "show_run",
]


_COLUMNS = (
    Column("run"),
    Column("model", yields=True),
    Column("state"),
    Column("created", optional=True),
    Column("worked on", right=True, optional=True),
    Column("latency", right=True),
    Column("of fastest", right=True),
)


def finished_report(run: Run) -> RunReport | None:
    """Returns the report of a finished run; None for other runs, and for a report that this version cannot read."""
    if run.state is not RunState.FINISHED or run.summary is None:
        return None
    try:
        return msgspec.json.decode(run.summary, type=RunReport)
    except UNREADABLE:
        return None


class RunLine(msgspec.Struct, frozen=True):
    """One run: its state, times of day, and the seconds in which it was worked on.

    Of a finished one, `latency_ms` is what its network takes, and `fastest_baseline` how that stands against the
    fastest other runtime.
    """

    run_id: str
    model: str
    state: str
    created: str
    updated: str
    active_seconds: float
    latency_ms: float | None = None
    fastest_baseline: FastestBaseline | None = None

    @classmethod
    def of(cls, run: Run) -> RunLine:
        """Returns the line of a run."""
        facts = run.run_id, run.model_name, run.state.value, run.created, run.updated, run.active_seconds
        report = finished_report(run)
        return (
            cls(*facts) if report is None else cls(*facts, report.latency_ms.tuned, report.latency_ms.fastest_baseline)
        )


class ListDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `kintune records list --json`; `damaged` runs are left out of `runs`."""

    schema_version: int = 1
    records: str
    counts: RecordCounts
    runs: tuple[RunLine, ...]
    damaged: int


@click.command("list", short_help="List the runs.")
@records_option
@json_option
def list_runs(records: str | None, json_target: JsonTarget) -> None:
    """List the runs, the latest first, and say how much the records hold."""
    damaged: list[object] = []
    with Store.open(records, create=False) as store:
        runs = tuple(RunLine.of(run) for run in store.runs.list(on_damage=damaged.append))
        counts, where, notice = store.counts(), store.where, store.notice
    write_document(json_target, ListDocument(records=where, counts=counts, runs=runs, damaged=len(damaged)))
    held = ", ".join(
        counted(number, noun)
        for number, noun in ((counts.runs, "run"), (counts.workloads, "workload"), (counts.measurements, "measurement"))
    )
    echo(f"{where}: {held}", json_target)
    if notice:
        echo(notice, json_target)
    if damaged:
        are, them = ("is", "it") if len(damaged) == 1 else ("are", "them")
        echo(f"{counted(len(damaged), 'run')} {are} damaged; 'kintune records check' names {them}", json_target)
    if not runs:
        return
    for line in table_lines(_COLUMNS, [_cells(run) for run in runs], output_width()):
        echo(line, json_target)


def _cells(run: RunLine) -> list[str]:
    fastest = run.fastest_baseline
    share = "" if fastest is None or fastest.ratio is None else f"{share_of(fastest)} {fastest.name}"
    latency = "" if run.latency_ms is None else milliseconds(run.latency_ms)
    created = run.created.replace("T", " ")[: len("2026-11-26 10:00")]
    return [run.run_id, run.model, run.state, created, clock(run.active_seconds), latency, share]


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
def show_run(run_id: str, records: str | None, json_target: JsonTarget) -> None:
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
    for said in _describe_run(document):
        echo(said, json_target)


def find_run(store: Store, start: str) -> Run:
    """Return the run whose id is `start`, or the only one whose id begins with it.

    Raises:
        InputError: there is none, or more than one.
    """
    found = [run for run in store.runs.list() if run.run_id.startswith(start)]
    exact = [run for run in found if run.run_id == start]
    if len(exact or found) == 1:
        return (exact or found)[0]
    if not found:
        raise InputError(f"{store.where}: there is no run {start}; 'kintune records list' names all")
    raise InputError(f"{store.where}: {len(found)} runs begin with {start}; write more of the id")


def _describe_run(document: ShowDocument) -> list[str]:
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


class CheckDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `kintune records check --json`.

    `damage` is what was found; `removed` says whether it was taken out, and `left` is what cannot be removed.
    """

    schema_version: int = 1
    records: str
    damage: tuple[Damage, ...]
    removed: bool
    left: tuple[Damage, ...]


@click.command("check", short_help="Check the records for damage; remove it on request.")
@click.option("--remove", is_flag=True, help="Remove damaged records, and all records that depend on them.")
@records_option
@json_option
def check(remove: bool, records: str | None, json_target: JsonTarget) -> int:
    """Read all records and list damaged ones.  The exit code is 1 if damage remains."""
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
    """Return the same with table names as plain strings: SQLAlchemy has a string class of its own for them."""
    return tuple(Damage(str(one.table), one.id, one.problem) for one in damage)


def _conclude(where: str, damage: Sequence[Damage], left: Sequence[Damage]) -> str:
    if not damage:
        return f"{where}: sound"
    if not left:
        return f"{where}: {len(damage)} damaged, all removed"
    return f"{where}: {len(left)} damaged; 'kintune records check --remove' removes what can be removed"
