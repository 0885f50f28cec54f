"""Processes that build candidates; for other benchmarks in this directory."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

import msgspec

from kintune.core.candidate import Candidate
from kintune.core.outcome import Outcome, Status
from kintune.core.stage_requests import BuildContext, Built
from kintune.errors import BuildError

__all__ = ["build", "builders"]

_context: BuildContext | None = None
_builder: Any = None


@contextmanager
def builders(count: int, context: BuildContext) -> Iterator[ProcessPoolExecutor]:
    """A pool of `count` processes in which `build` can be run."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count, spawn, _start, (msgspec.msgpack.encode(context),)) as pool:
        yield pool


def build(candidate: Candidate) -> Built:
    """Build a candidate in such a process."""
    assert _context is not None
    try:
        built: Built = _builder.build(_context, candidate)
    except BuildError as error:
        return Built(candidate.digest, failure=Outcome(Status.BUILD_FAILED, cause=str(error)))
    return built


def _start(context: bytes) -> None:
    global _context, _builder
    os.environ["TVM_NUM_THREADS"] = "1"
    from kintune.compiler.build import CandidateBuilder

    _context = msgspec.msgpack.decode(context, type=BuildContext)
    _builder = CandidateBuilder(_context.target)
