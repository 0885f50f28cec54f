"""`kintune jobs`: your jobs at a service."""

from __future__ import annotations

import time

import click

from kintune.cli.document import JsonTarget, echo, json_option, write_document
from kintune.cli.remote import JobsDocument, job_line, service_options
from kintune.service.client import Client

__all__ = ["command"]


@click.command("jobs", short_help="List your jobs at a service.")
@service_options
@click.option("--state", "states", multiple=True, help="Only those in this state; may be given again.")
@click.option("--everybody", is_flag=True, help="All users' jobs, for who may see them.")
@click.option("--limit", type=click.IntRange(1, 200), default=20, show_default=True, help="How many.")
@json_option
def command(
    token: str | None,
    service: str | None,
    states: tuple[str, ...],
    everybody: bool,
    limit: int,
    json_target: JsonTarget,
) -> None:
    """List your jobs, newest first."""
    with Client(service, token) as client:
        found = client.jobs(state=list(states), everybody=everybody, limit=limit)
    write_document(json_target, JobsDocument(jobs=found))
    for job in found:
        echo(job_line(job, time.time()), json_target)
