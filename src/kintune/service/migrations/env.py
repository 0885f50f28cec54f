"""How Alembic runs the migrations: on the connection that it is handed, in its transaction."""

from __future__ import annotations

from alembic import context

from kintune.service.schema import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    version_table="service_alembic",
    render_as_batch=True,  # SQLite changes tables by copying them
)
context.run_migrations()
