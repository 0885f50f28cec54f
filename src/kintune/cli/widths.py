"""How wide output may be: as wide as the terminal, if it goes to one."""

from __future__ import annotations

import os
import sys

__all__ = ["help_width", "output_width", "prose_width", "table_width"]

_MOST_COLUMNS = 100
"""The widest help text: longer lines are hard to read."""

_ELSEWHERE = 80  # the columns of help and of tables that go to a file

_LEAST_TABLE, _MOST_TABLE = 40, 160


def help_width() -> int:
    """The columns that help is wrapped to."""
    return min(_columns() or _ELSEWHERE, _MOST_COLUMNS) - 1  # some terminals wrap a line that fills them


def prose_width() -> int | None:
    """The columns of the terminal that standard output goes to; None where there is none."""
    return _terminal_columns()


def output_width() -> int | None:
    """The columns of the terminal that standard output goes to, or of $COLUMNS; None where there is none.

    What goes to a file or a pipe is not cut.
    """
    return _columns()


def _columns() -> int | None:
    if (told := os.environ.get("COLUMNS", "")).isdecimal() and len(told) < 5 and int(told) > 0:
        return int(told)
    return _terminal_columns()


def _terminal_columns() -> int | None:
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None
    except (AttributeError, OSError, ValueError):
        return None


def table_width() -> int:
    """How wide a table may be: as wide as the terminal, within limits; 80 columns where there is no terminal."""
    return min(max(output_width() or _ELSEWHERE, _LEAST_TABLE), _MOST_TABLE)
