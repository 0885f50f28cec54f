"""The build worker: `python -m kintune.workers.build_worker --fd N`, started by the engine.

It keeps no state but a cache: workloads and sketches stay parsed from one stage to the next.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from kintune.core.outcome import Outcome, Status
from kintune.core.stage_requests import BuildContext, BuildItem, Built
from kintune.errors import BuildError, DeviceUnwell, OrderError, WireError
from kintune.hardware.software import forbid_torch
from kintune.hardware.toolchain import find_linker
from kintune.wire import worker_loop as worker

if TYPE_CHECKING:
    from kintune.compiler.build import CandidateBuilder

__all__ = ["KIND", "BuildHandler", "main"]

KIND = "build"
"""The kind of worker, as in `Work.worker`."""


class BuildHandler:
    """Turns BUILD items into built candidates.  `builder_for` makes the builder for a target, given as JSON."""

    def __init__(self, builder_for: Callable[[str], CandidateBuilder]) -> None:
        self._builder_for = builder_for
        self._builders: dict[str, CandidateBuilder] = {}
        self._context: BuildContext | None = None

    def begin(self, kind: str, context: bytes) -> None:
        """Enter a stage of kind "build"; `context` is an encoded `BuildContext`."""
        self._context = None
        if kind != KIND:
            raise WireError(f"a build worker was asked for a stage of kind {kind!r}")
        self._context = msgspec.msgpack.decode(context, type=BuildContext)

    def item(self, payload: bytes) -> bytes:
        """Build an encoded `BuildItem`; the answer is an encoded `Built`, which holds the failure if there was one."""
        if self._context is None:
            raise WireError("a build worker was sent an item before a stage was begun")
        candidate = msgspec.msgpack.decode(payload, type=BuildItem).candidate
        try:
            built = self._builder(self._context.target).build(self._context, candidate)
        except BuildError as error:
            cause = str(error).removeprefix(f"{candidate.digest}: ")  # equal causes are to be counted as one
            built = Built(candidate.digest, failure=Outcome(Status.BUILD_FAILED, cause=cause))
        except OrderError as error:  # a tool for that target is missing here; other hosts may have it
            raise DeviceUnwell(str(error)) from error
        return msgspec.msgpack.encode(built)

    def _builder(self, target: str) -> CandidateBuilder:
        if target not in self._builders:
            self._builders[target] = self._builder_for(target)
        return self._builders[target]


def main(argv: Sequence[str] | None = None) -> None:
    """Serve until the front closes the channel."""
    worker.main(KIND, _start, argv)


def _start(_arguments: list[str]) -> tuple[bytes, BuildHandler]:
    os.environ.setdefault("TVM_NUM_THREADS", "1")
    find_linker()
    forbid_torch()

    from kintune.compiler.build import CandidateBuilder

    return b"", BuildHandler(CandidateBuilder)


if __name__ == "__main__":
    main()
