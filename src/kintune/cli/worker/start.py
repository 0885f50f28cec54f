"""`kintune worker start`: build here what a service wants to try."""

from __future__ import annotations

import os

import click

from kintune.cli.joining import attend, joining_options
from kintune.doctor.software import require_tried_versions
from kintune.errors import InputError
from kintune.fleet.offer import offer_cores
from kintune.front.place import memory_mb

__all__ = ["command"]


@click.command("start", short_help="Build here what a service wants to try.")
@joining_options
@click.option("--cores", type=int, metavar="N", help="How many cores to lend.  [default: all]")
def command(service: str, token_file: str | None, name: str, cores: int | None) -> None:
    """Join a service as a host that builds programs, until Ctrl-C.

    It dials out: no port of it has to be open.  When the line is cut it dials again.
    """
    require_tried_versions()
    usable = tuple(sorted(os.sched_getaffinity(0)))
    if cores is not None and not 1 <= cores <= len(usable):
        raise InputError(f"--cores {cores}: this process may use {len(usable)}")
    attend(service, token_file, lambda: offer_cores(name, usable[:cores], memory_mb()))
