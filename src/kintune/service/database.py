"""The service's database: SQLite or PostgreSQL, brought to the newest tables when it is opened."""

from __future__ import annotations

from importlib.resources import as_file, files
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Row

from kintune.errors import RecordsError
from kintune.records.database import Database
from kintune.records.location import database_system_at

__all__ = ["open_database", "plain"]
_BUSY_S = 30.0
_VERSIONS = "service_alembic"  # the table that says which tables there are


def open_database(location: str) -> Database:
    """Opens the database at a path or URL; missing tables are made, older ones brought up to date.

    Raises:
        RecordsError: it cannot be used, or a newer version of Kintune has written it.
        StorageError: it cannot be written.
    """
    system = database_system_at(location, _BUSY_S)
    database = Database(system, create=True, verify=True)
    try:
        with system.opening(), as_file(files("kintune.service") / "migrations") as scripts:
            system.adopt(database.engine)
            with database.transaction() as connection:
                config = Config()
                config.set_main_option("script_location", str(scripts))
                config.attributes["connection"] = connection
                _refuse_newer(connection, config, system.where)
                command.upgrade(config, "head")
    except BaseException:
        database.close()
        raise
    return database


def _refuse_newer(connection: object, config: Config, where: str) -> None:
    """Refuses tables of a newer version, which this code does not know.

    Raises:
        RecordsError: the tables are of a newer version.
    """
    context = MigrationContext.configure(connection, opts={"version_table": _VERSIONS})  # type: ignore[arg-type]
    revision = context.get_current_revision()
    if revision is None:
        return
    try:
        ScriptDirectory.from_config(config).get_revision(revision)
    except CommandError:
        raise RecordsError(
            f"{where}: was written by a newer version of kintune (tables of revision {revision}); install that one"
        ) from None


def plain(row: Row[Any]) -> dict[str, Any]:
    """Returns a row by column name, as `str`: SQLAlchemy's own type of names is not accepted by other libraries."""
    return {str(name): value for name, value in row._asdict().items()}
