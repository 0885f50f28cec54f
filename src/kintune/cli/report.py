"""`kintune report`: show the outcome of a run, also as a page."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import msgspec

from kintune.cli.document import JsonTarget, echo, json_option, write_document
from kintune.cli.options import html_option, records_option
from kintune.cli.records import find_run
from kintune.cli.widths import table_width
from kintune.core.failure_report import AnyReport, FailureReport, decode_report, report_path
from kintune.core.report import CampaignReport, SubgraphReport
from kintune.errors import InputError
from kintune.files import check_readable, check_writable, write_whole
from kintune.records import RunState, Store
from kintune.terminal.formatting import clock, counted, milliseconds
from kintune.terminal.profile_table import profile_lines
from kintune.terminal.summary import summarize

__all__ = ["command", "decoded_report", "find_report", "show_report"]

_SUFFIX = ".kt"
_MAX_SLOWEST = 5
_MOST_CALLS = 10


@click.command("report", short_help="Show the report of a run, also as an HTML page.")
@click.argument("run", metavar="RUN")
@html_option
@records_option
@json_option
def command(run: str, html_target: str | None, records: str | None, json_target: JsonTarget) -> None:
    """Show the report of RUN: MODEL.kt with its report beside it, a report, or the id of a run in the records.

    A prefix of an id is enough; 'kintune records list' names all.  A run that failed has a report as well: what was
    tried, and why nothing came of it.
    """
    html = None if html_target is None else check_writable(html_target, "--html", stream=True)
    show_report(find_report(run, records), html, json_target)


def show_report(
    report: AnyReport,
    html: Path | None,
    json_target: JsonTarget,
    job: str = "",
    files_removed: float | None = None,
) -> None:
    """Writes the document of a report, its lines, and its page to the file `html`.

    `job` names one of a service, and `files_removed` is when its files were (seconds since 1970), if they were.
    """
    write_document(json_target, report)
    for line in _lines(report, table_width(), job, files_removed):
        echo(line, json_target)
    if html is not None:
        from kintune.terminal.report_page import report_page

        write_whole(html, report_page(report))
        echo(f"Wrote {html}", json_target)


def find_report(run: str, records: str | None) -> AnyReport:
    """Returns the report of an executable, of a file, or of a run in the records.

    Raises:
        InputError: there is none.
    """
    path = Path(run)
    if path.suffix == _SUFFIX:
        beside = report_path(run)
        if not os.path.exists(beside):
            raise InputError(f"{run}: there is no report {beside} beside it; name the run, see 'kintune records list'")
        return _read(beside)
    if path.suffix == ".json" or os.path.isfile(path):
        return _read(check_readable(run, "RUN"))
    with Store.open(records, create=False) as store:
        found = find_run(store, run)
    if found.summary is None:
        goes_on = "" if found.state.final else "; the command that began it goes on with it"
        raise InputError(f"run {found.run_id} of {found.model_name} is {found.state.value} and has no report{goes_on}")
    what = f"run {found.run_id}, {'finished' if found.state is RunState.FINISHED else found.state.value}"
    return decoded_report(found.summary, what)


def _read(path: Path) -> AnyReport:
    try:
        return decoded_report(path.read_bytes(), str(path))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error


def decoded_report(content: bytes, what: str) -> AnyReport:
    """Returns the report in a JSON document; errors name it `what`.

    Raises:
        InputError: it is none of this version.
    """
    try:
        return decode_report(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{what}: is no report of this version of Kintune ({error})") from error


def _lines(report: AnyReport, columns: int, job: str = "", files_removed: float | None = None) -> Iterator[str]:
    if isinstance(report, CampaignReport):
        for run in report.runs:
            yield from summarize(run)
        for failed in report.failed:
            yield f"{failed.model}: no result. {failed.reason}"
    elif isinstance(report, FailureReport):
        yield from _failure_lines(report)
    else:
        yield from summarize(report, job=job, files_removed=files_removed)
        if report.profile is not None:
            yield ""
            yield from profile_lines(report.profile, _MOST_CALLS, columns)
        elif report.subgraphs:
            yield "Its operators, slowest first, each measured alone:"
            yield from _slowest(report.subgraphs)


def _slowest(subgraphs: Sequence[SubgraphReport]) -> Iterator[str]:
    """A line for each of those that take the most time, by the user's nodes."""
    timed = [each for each in subgraphs if each.best_us is not None]
    timed.sort(key=lambda each: -each.weight * (each.best_us or 0.0))
    for each in timed[:_MAX_SLOWEST]:
        times = f", {each.weight} times" if each.weight > 1 else ""
        best, programs = milliseconds((each.best_us or 0.0) / 1e3), counted(each.trials, "program")
        yield f"  {each.title}{times}: best {best} of {programs}"


def _failure_lines(report: FailureReport) -> Iterator[str]:
    yield f"{report.model.name}: no result."
    yield f"{report.error}: {report.cause}"
    yield f"{counted(report.trials, 'program')} measured, in {clock(report.seconds)}."
    yield from _slowest(report.subgraphs)
    for cause, number in report.failures.items():
        yield f"  {number} failed: {cause}"
    if report.log:
        yield f"The log is {report.log}"
