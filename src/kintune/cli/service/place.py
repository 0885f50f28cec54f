"""The service that a command is about: its database on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import click

from kintune.errors import InputError
from kintune.records.database import Database
from kintune.service.database import open_database
from kintune.service.settings import ServiceSettings, settings_in

__all__ = ["data_option", "database_at", "settings_at"]

data_option = click.option(
    "--data", default="kintune-service", show_default=True, metavar="DIR", help="The service's data directory."
)


@contextmanager
def database_at(data: str) -> Iterator[Database]:
    """The database of the service in this directory.  Raises InputError when there is no such directory."""
    with closing(open_database(settings_at(data).service_database)) as database:
        yield database


def settings_at(data: str) -> ServiceSettings:
    """The settings of the service in this directory.  Raises InputError when there is none, or they cannot be read."""
    directory = Path(data).expanduser().absolute()
    if not directory.is_dir():
        raise InputError(f"--data {data}: there is no such directory; `kintune serve` makes it")
    return settings_in(directory) or ServiceSettings(
        data=str(directory), database=os.environ.get("KINTUNE_DATABASE", "")
    )
