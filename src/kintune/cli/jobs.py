"""`kintune jobs`, and `kintune job` with all that can be done with one of them."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import click
import msgspec

from kintune.cli.document import JsonTarget, echo, json_option, write_document
from kintune.cli.finite_range import FiniteRange
from kintune.cli.options import html_option
from kintune.cli.remote import (
    ENDED,
    CommandClient,
    JobDisplay,
    JobDocument,
    JobsDocument,
    job_line,
    job_table,
    outliving,
    service_options,
)
from kintune.cli.widths import output_width
from kintune.errors import InputError
from kintune.files import check_writable
from kintune.service.job_request import MOST_PRIORITY
from kintune.service.job_status import JobStatus
from kintune.service.orchestrator.engine_log import lines_of
from kintune.service.webhook_outcome import WebhookOutcome

__all__ = [
    "JobLogDocument",
    "cancel",
    "delete_files",
    "download",
    "finish",
    "list_jobs",
    "logs",
    "priority",
    "report",
    "retry",
    "show",
    "watch",
]


def _of_a_job(name: str, short_help: str) -> Callable[[Callable[..., None]], click.Command]:
    """Returns a decorator that makes a command about one job of a service, with a JSON document."""

    def decorate(run: Callable[..., None]) -> click.Command:
        """Make the command."""
        command = click.command(name, short_help=short_help)
        return command(click.argument("job")(service_options(json_option(run))))

    return decorate


@_of_a_job("show", "Show the state and the history of a job.")
def show(job: str, token: str | None, service: str | None, json_target: JsonTarget) -> None:
    """Show JOB with all its state transitions."""
    with CommandClient(service, token) as client:
        found = client.job(job)
    write_document(json_target, JobDocument(job=found))
    if found.get("model_name"):
        echo(f"{found['model_name']} on {found['wanted']['device']}, priority {found['priority']:g}", json_target)
    echo(job_line(found, time.time()), json_target)
    for step in found["steps"]:
        at = datetime.fromtimestamp(step["at"], timezone.utc).isoformat(sep=" ", timespec="seconds")
        echo(f"  {at}  {step['state']:10} {step['reason']}".rstrip(), json_target)
    for call in found.get("webhook_calls") or ():
        echo(f"  {msgspec.convert(call, WebhookOutcome).words}", json_target)
    if found.get("files_removed") is not None:
        at = datetime.fromtimestamp(found["files_removed"], timezone.utc).isoformat(sep=" ", timespec="seconds")
        echo(f"  {at}  its files were removed", json_target)


@_of_a_job("watch", "Show the progress of a job until it ends.")
def watch(job: str, token: str | None, service: str | None, json_target: JsonTarget) -> None:
    """Show the progress of JOB until it ends; the exit code is 1 if it fails."""

    def say(line: str) -> None:
        echo(line, json_target)

    with CommandClient(service, token) as client, outliving(job, say), JobDisplay(f"job {job}", say) as news:
        try:
            client.wait(job, news)
        finally:
            if json_target:
                write_document(json_target, JobDocument(job=client.job(job)))


class JobLogDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `kintune job logs --json`: the log line by line, without the run's name before each."""

    schema_version: int = 1
    job: str
    lines: list[str]


@_of_a_job("logs", "Print the log of a job.")
def logs(job: str, token: str | None, service: str | None, json_target: JsonTarget) -> None:
    """Print the log of JOB, which is there once the job has ended."""
    with CommandClient(service, token) as client, tempfile.TemporaryDirectory() as place:
        text = client.download(job, Path(place) / "log", "log").read_text(errors="replace")
    lines = lines_of(text)
    write_document(json_target, JobLogDocument(job=job, lines=lines))
    for line in lines or ["The log is empty."]:
        echo(line, json_target)


@click.command("report", short_help="Show the report of a job, also as an HTML page.")
@click.argument("job")
@service_options
@html_option
@json_option
def report(job: str, token: str | None, service: str | None, html_target: str | None, json_target: JsonTarget) -> None:
    """Show the report of JOB, which has a result: its speedup, errors, operators and failed candidates."""
    from kintune.cli.report import decoded_report, show_report  # with the records, which other commands do not need

    html = None if html_target is None else check_writable(html_target, "--html", stream=True)
    with CommandClient(service, token) as client:
        document, removed = client.report(job), client.job(job).get("files_removed")
    read = decoded_report(msgspec.json.encode(document), f"job {job}")
    show_report(read, html, json_target, job=job, files_removed=removed)


@_of_a_job("finish", "End the search; keep the best result so far.")
def finish(job: str, token: str | None, service: str | None, json_target: JsonTarget) -> None:
    """End the search of JOB; its result is the best one so far."""
    with CommandClient(service, token) as client:
        _show_state(client.finish(job), json_target, "ends with the best result so far")


@click.command("priority", short_help="Change the priority of a job.")
@click.argument("job")
@click.argument("weight", metavar="NUMBER", type=FiniteRange(0, MOST_PRIORITY, min_open=True))
@service_options
@json_option
def priority(job: str, weight: float, token: str | None, service: str | None, json_target: JsonTarget) -> None:
    """Set the priority of JOB to NUMBER: 2 gets twice as much of a scarce resource as 1."""
    with CommandClient(service, token) as client:
        _show_state(client.prioritize(job, weight), json_target, f"gets priority {weight:g}")


@_of_a_job("cancel", "Cancel a job; it has no result.")
def cancel(job: str, token: str | None, service: str | None, json_target: JsonTarget) -> None:
    """Cancel JOB without a result; its measurements are kept."""
    with CommandClient(service, token) as client:
        _show_state(client.cancel(job), json_target, "is cancelled")


@_of_a_job("retry", "Retry a failed or cancelled job.")
def retry(job: str, token: str | None, service: str | None, json_target: JsonTarget) -> None:
    """Continue JOB as a new job; prints the new id."""
    with CommandClient(service, token) as client:
        found = client.retry(job)
    write_document(json_target, JobDocument(job=found))
    echo(found["id"], json_target)


@click.command("download", short_help="Download the result of a job.")
@click.argument("job")
@service_options
@click.option("-o", "--output", metavar="FILE.kt|DIR", required=True, help="The file to write, or its directory.")
@click.option(
    "--to",
    type=click.Choice(["c", "onnx", "wheel"]),
    help="What 'kintune export' makes of the executable instead: a wheel, or a zip file.",
)
def download(job: str, token: str | None, service: str | None, output: str, to: str | None) -> None:
    """Download the executable of JOB, or an export of it.  In a directory it has the name that the service gives it."""
    with CommandClient(service, token) as client:
        if to is None:
            click.echo(f"The executable is {client.download(job, output)}")
        else:
            click.echo(f"The export is {client.download(job, output, f'export/{to}')}")


@click.command("delete-files", short_help="Delete the executables and the logs of jobs.")
@click.argument("jobs", metavar="JOB [JOB ...]", nargs=-1, required=True)
@service_options
@json_option
def delete_files(jobs: tuple[str, ...], token: str | None, service: str | None, json_target: JsonTarget) -> None:
    """Delete the executable and the log of each JOB, which has ended; its report is kept.

    Where some are refused, those of the others are deleted, and the exit code is 2.
    """
    deleted, refused = [], []
    with CommandClient(service, token) as client:
        for job in dict.fromkeys(jobs):
            try:
                client.delete_files(job)
                deleted.append(client.job(job))
            except InputError as error:
                refused.append(str(error))
    write_document(json_target, JobsDocument(jobs=deleted))
    for found in deleted:
        echo(f"The files of job {found['id']} are deleted.", json_target)
    if refused:
        raise InputError("; ".join(refused))


@click.command("jobs", short_help="List your jobs at a service.")
@service_options
@click.option(
    "--state",
    "states",
    type=click.Choice([state.value for state in JobStatus]),
    multiple=True,
    help="Only jobs in this state; can be repeated.",
)
@click.option("--search", metavar="WORDS", help="Only jobs with these words in their id, model, device or user.")
@click.option("--everybody", is_flag=True, help="List the jobs of all users; needs an admin token.")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Most jobs that are listed.")
@json_option
def list_jobs(
    token: str | None,
    service: str | None,
    states: tuple[str, ...],
    search: str | None,
    everybody: bool,
    limit: int,
    json_target: JsonTarget,
) -> None:
    """List your jobs, newest first."""
    with CommandClient(service, token) as client:
        words = {"text": search} if search else {}
        found = client.jobs(state=list(states), everybody=everybody, limit=limit, **words)
    write_document(json_target, JobsDocument(jobs=found))
    if not found:
        echo("There is no job.", json_target)
        return
    for line in job_table(found, time.time(), output_width(), with_users=everybody):
        echo(line, json_target)


def _show_state(job: dict[str, Any], json_target: JsonTarget, asked: str) -> None:
    """Writes the document of a job after a command, and lines with its state and with what was `asked` of it.

    The state is that before the command was carried out, as a rule.
    """
    write_document(json_target, JobDocument(job=job))
    echo(job_line(job, time.time()), json_target)
    if job["state"] not in ENDED:
        echo(f"The service has accepted the request: the job {asked}.", json_target)
