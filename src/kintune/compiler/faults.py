"""Turns errors of any type into one with a message of one line, and finds a way around faults of LLVM."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import tvm

from kintune.errors import BuildError
from kintune.runtime.target import at_level

__all__ = ["as_build_error", "build_for", "left_out"]

_Made = TypeVar("_Made")

_log = logging.getLogger(__name__)

_REFUSES_OWN = "LLVM module verification failed"
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


def build_for(target: tvm.target.Target, build: Callable[[tvm.target.Target], _Made]) -> _Made:
    """What `build` makes for the target; with fewer optimisations where LLVM then refuses what it has made itself.

    Its vectoriser of scalars (SLP, from the second level on) makes no valid function of some small sums, such as a
    product of [4, 3] by [3, 9] on Zen 3.
    """
    try:
        return build(target)
    except tvm.error.InternalError as error:
        if _REFUSES_OWN not in str(error):
            raise
        _log.warning("LLVM refuses what its own passes made; compiled with fewer of them")
        return build(at_level(target, 1))


def _line(error: Exception) -> str:
    """The last line of the error's text, with its type in front unless that is `BuildError`."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = lines[-1][:_LONGEST] if lines else ""
    return said if isinstance(error, BuildError) else f"{type(error).__name__}: {said}"
