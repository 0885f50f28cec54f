"""`kintune bench`: run a whole matrix of experiments unattended."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import click

from kintune.cli.document import JsonTarget, echo, json_option, write_document
from kintune.cli.options import quiet_option
from kintune.errors import InputError
from kintune.terminal.formatting import duration
from kintune_lab.bench.display import BenchDisplay, open_bench_display
from kintune_lab.bench.runner import BenchRunner, import_models, seconds_left
from kintune_lab.bench.spec import BenchSpec, read_bench_spec
from kintune_lab.bench.summary import BenchSummary
from kintune_lab.experiment.experiment import ModelFacts

__all__ = ["command"]

_FAILED = 1


@click.command("bench", short_help="Run a matrix of experiments unattended.")
@click.argument("spec", metavar="SPEC.toml")
@click.option("-o", "--output", metavar="DIR", help="The directory of the results.  [default: bench-NAME]")
@click.option("--retry-failed", is_flag=True, help="Run failed cells again.")
@click.option("--report-only", is_flag=True, help="Run nothing; collect the existing results and write the report.")
@click.option("--dry-run", is_flag=True, help="Run nothing; check the spec, import its models, list what would be run.")
@quiet_option
@json_option
def command(
    spec: str,
    output: str | None,
    retry_failed: bool,
    report_only: bool,
    dry_run: bool,
    quiet: bool,
    json_target: JsonTarget,
) -> int:
    """Run every cell of the matrix that SPEC.toml describes, and collect the results in one directory.

    A bench that was killed goes on by the same command: cells that are done are not run again, and the one that was
    interrupted is run from its start.  A cell that fails is recorded, does not end the rest, and makes the exit code 1.
    """
    if report_only and (dry_run or retry_failed):
        raise InputError("--report-only runs nothing; leave --dry-run and --retry-failed out")
    read = read_bench_spec(spec)
    directory = Path(output or f"bench-{read.name}")
    display = open_bench_display(f"{read.name}: {read.experiment.name}, {_cells(len(read.cells))}", quiet=quiet)
    try:
        bench = BenchRunner(read, directory, display, _importer(read, display))
        if dry_run:
            _list(bench, retry_failed=retry_failed, target=json_target)
            return 0
        summary = bench.report() if report_only else bench.run(retry_failed=retry_failed)
    finally:
        display.close()
    write_document(json_target, summary)
    for line in _lines(summary):
        echo(line, json_target)
    return _FAILED if summary.failed else 0


def _importer(spec: BenchSpec, display: BenchDisplay) -> Callable[[Sequence[str]], Mapping[str, ModelFacts]]:
    return lambda models: import_models(models, display.say, spec.models)


def _list(bench: BenchRunner, *, retry_failed: bool, target: JsonTarget) -> None:
    """Say what a run would do."""
    due = bench.plan(retry_failed=retry_failed)
    expected = bench.expected(due)
    for cell, seconds in zip(due, expected, strict=True):
        about = "time unknown" if seconds is None else f"about {duration(seconds)}"
        echo(f"{cell.id}  {cell.title} ({about})", target)
        for method in cell.methods:
            echo(f"{'':12}  - {method.label}", target)
    whole = seconds_left(expected, [])
    takes = "time unknown" if whole is None else f"about {duration(whole)}"
    echo(f"{_cells(len(due))} to run, {takes}", target)


def _lines(summary: BenchSummary) -> list[str]:
    state = f"{summary.done} of {summary.cells} cells done"
    if summary.left:
        state += f", {summary.left} not run yet"
    lines = [f"{summary.name}: {state}, {duration(summary.seconds)} of measuring."]
    if summary.failed:
        many = len(summary.failed)
        lines.append(
            f"{many} cell{'' if many == 1 else 's'} failed; --retry-failed runs {'it' if many == 1 else 'them'} again:"
        )
        lines.extend(f"  {cell.title}: {cell.error}: {cell.reason}" for cell in summary.failed)
    lines.append(f"The results are in {summary.output}, the report is {summary.output}/report.html")
    return lines


def _cells(count: int) -> str:
    return "1 cell" if count == 1 else f"{count} cells"
