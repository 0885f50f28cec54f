"""`kintune service backup`, `restore`."""

from __future__ import annotations

from pathlib import Path

import click

from kintune.cli.service.place import data_option, settings_at
from kintune.files import check_readable, check_writable
from kintune.service.archive import back_up, restore

__all__ = ["backup", "restore_"]


@click.command("backup", short_help="Write everything to one file.")
@click.argument("file")
@data_option
def backup(file: str, data: str) -> None:
    """Write users, jobs, models, results and records to FILE, a tar archive.  The service may go on meanwhile.

    Whoever can read the file can read everything; tokens are in it as hashes only.
    """
    target = check_writable(file, "FILE")
    count = back_up(settings_at(data), target)
    click.echo(f"{target}: the tables and {count} files, {target.stat().st_size / 1e6:.1f} MB.")


@click.command("restore", short_help="Make a service out of a back-up.")
@click.argument("file")
@data_option
@click.option("--database", default="", metavar="URL", help="An empty PostgreSQL database, for a back-up of one.")
def restore_(file: str, data: str, database: str) -> None:
    """Make a service out of the back-up FILE, in a new directory."""
    source = check_readable(file, "FILE")
    settings = restore(source, Path(data).expanduser().absolute(), database)
    rest = " --database URL, the same" if database else ""
    click.echo(f"Restored to {settings.data}; start it with: kintune serve --data {data}{rest}")
