"""The location of the records: by default, or as a path or URL of the user."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs
from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from kintune.errors import RecordsError
from kintune.files import expanded
from kintune.records.database import DatabaseSystem
from kintune.records.sqlite import SQLiteFile, SQLiteMemory

__all__ = ["ENVIRONMENT", "are_there", "database_system_at", "default_location"]

ENVIRONMENT = "KINTUNE_RECORDS"
"""Environment variable that names the records in place of the user's data directory."""

_MEMORY = ":memory:"


def default_location() -> str:
    """`$KINTUNE_RECORDS` if set, else `records.sqlite` in the user's data directory."""
    return os.environ.get(ENVIRONMENT) or str(Path(platformdirs.user_data_dir("kintune")) / "records.sqlite")


def are_there(location: str) -> bool:
    """Whether there may be records at a location: a file exists, or it is the URL of a database."""
    return "://" in location or os.path.exists(expanded(location))


def database_system_at(location: str | Path, busy_seconds: float) -> DatabaseSystem:
    """Returns the database system of a path, a database URL (`postgresql+psycopg://...`), or ":memory:".

    Raises:
        RecordsError: it is neither, or a database of another kind.
    """
    text = str(location)
    if text == _MEMORY:
        return SQLiteMemory()
    if isinstance(location, Path) or "://" not in text:
        return SQLiteFile(expanded(text), busy_seconds)
    try:
        url = make_url(text)
    except (ArgumentError, ValueError) as error:  # the second: its port is no number
        raise RecordsError(f"{text}: neither a path nor the URL of a database") from error
    match url.get_backend_name():
        case "sqlite":
            return database_system_at(url.database or _MEMORY, busy_seconds)
        case "postgresql":
            return DatabaseSystem(url)
        case other:
            raise RecordsError(f"{text}: records cannot be kept in {other}; use a file or PostgreSQL")
