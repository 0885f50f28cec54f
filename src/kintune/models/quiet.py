"""Silence for libraries that print and warn on their way."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator

__all__ = ["quiet"]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Swallow what Python code prints and warns; what matters arrives as an exception."""
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        yield
