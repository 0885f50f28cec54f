"""Rows of the database as plain dictionaries."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Row

__all__ = ["plain"]


def plain(row: Row[Any]) -> dict[str, Any]:
    """By column; SQLAlchemy's names are strings of its own kind, which other libraries do not take for strings."""
    return {str(name): value for name, value in row._asdict().items()}
