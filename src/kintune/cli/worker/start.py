"""`kintune worker start`: build here what a service wants to try."""

from __future__ import annotations

import os

import click

from kintune.cli.joining import attend, joining_options, note
from kintune.errors import InputError
from kintune.hardware.locks import cores_lock
from kintune.hardware.software import require_tried_versions
from kintune.tuning.front.placement import memory_mb
from kintune.workers.fleet.offer import offer_cores

__all__ = ["command"]

_GB = 1024  # memory is told in whole GB, which an update of the system does not change


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
    lent = usable[:cores]
    with cores_lock(lent, lambda holder: note(f"waiting for the cores, held by process {holder}; see --cores")):
        attend(service, token_file, lambda: offer_cores(name, lent, memory_mb() // _GB * _GB))
