"""The PostgreSQL server that tests may use, with a schema for each: processes of tests run beside each other."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import create_engine, make_url
from sqlalchemy.schema import CreateSchema, DropSchema

__all__ = ["POSTGRES", "empty_schema"]

POSTGRES = "KINTUNE_TEST_POSTGRES"
"""The variable with the URL of a database."""


@contextmanager
def empty_schema() -> Iterator[str]:
    """A schema of the server that nobody else uses, as the URL of a database."""
    url, name = os.environ[POSTGRES], f"test_{secrets.token_hex(6)}"
    engine = create_engine(url)
    try:
        with engine.begin() as connection:
            connection.execute(CreateSchema(name))
        yield (
            make_url(url).update_query_dict({"options": f"-csearch_path={name}"}).render_as_string(hide_password=False)
        )
        with engine.begin() as connection:
            connection.execute(DropSchema(name, cascade=True))
    finally:
        engine.dispose()
