"""Turns errors of any type, of TVM or of Kintune's own programs, into one type of error with a message of one line."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from kintune.errors import BuildError

__all__ = ["as_build_error", "left_out"]

_log = logging.getLogger(__name__)

_LONGEST = 200  # characters of the error's text that the message has


@contextmanager
def as_build_error(failing: str = "") -> Iterator[None]:
    """Turn an error of any type into a `BuildError` of one line; `failing` is its beginning ("program padded fails").

    Raises:
        BuildError: when the block raises an error.
    """
    try:
        yield
    except BuildError:
        raise
    except Exception as error:  # TVM raises many types for what it cannot schedule or lower
        raise BuildError(f"{failing}: {_line(error)}" if failing else _line(error)) from error


@contextmanager
def left_out(failing: str) -> Iterator[None]:
    """Suppress an error of the block, and log it: other programs compute the workload."""
    try:
        yield
    except Exception as error:
        _log.warning(f"{failing}: {_line(error)}")


def _line(error: Exception) -> str:
    """The last line of the error's text, with its type in front unless that is `BuildError`."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = lines[-1][:_LONGEST] if lines else ""
    return said if isinstance(error, BuildError) else f"{type(error).__name__}: {said}"
