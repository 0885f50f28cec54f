"""Says that another process of Kintune measures on the cores that a command is about to use."""

from __future__ import annotations

import os

import click

from kintune.hardware.locks import holder_of

__all__ = ["warn_of_held_cores"]


def warn_of_held_cores() -> None:
    """Say on standard error who measures on this process' cores: commands that only time a result do not wait."""
    holder = holder_of(os.sched_getaffinity(0))
    if holder is not None:
        click.echo(
            f"the cores are held by process {holder}: it measures meanwhile, so these times and its own are longer",
            err=True,
        )
