"""A tuner under test as the turn scheduler sees it, and the process behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from kintune.wire.worker_client import WorkerProcess
from kintune_lab.tuners.messages import (
    TUNER,
    KintuneSpec,
    PrepareTuner,
    ReportTurn,
    RunTurn,
    TunerContext,
    TunerReady,
    TunerRequest,
    TurnEnded,
    TurnReport,
    WarmStart,
)

__all__ = ["TUNER_MODULE", "TunerProcess", "TunerUnderTest", "WarmStartSource"]

WarmStartSource = Callable[[TunerReady], WarmStart]
"""Returns the warm start for a network."""

TUNER_MODULE = "kintune_lab.tuners.process"

_PREPARE_SECONDS = 3600.0
_TURN_SECONDS = 3.0 * 3600  # 64 candidates that all take as long as they may are built and run in 50 minutes
_TELL_SECONDS = 600.0


class TunerUnderTest(Protocol):
    """A tuner that takes turns.

    Raises:
        EngineError: in each method, the tuner's process died.
    """

    name: str
    trials_expected: int | None

    def prepare(self) -> TunerReady:
        """Import and lower the model; not charged."""

    def run_turn(self) -> bool:
        """Take a turn, which ends with this call; True when there will be no more."""

    def report(self) -> TurnReport:
        """Report the last turn; not charged."""

    def stop(self) -> None:
        """Stop the process until `resume`."""

    def resume(self) -> None:
        """Continue the process."""


class TunerProcess:
    """A tuner in a process of its own."""

    def __init__(
        self,
        name: str,
        context: TunerContext,
        log: Path,
        environment: Mapping[str, str],
        warm_start: WarmStartSource | None = None,
        module: str = TUNER_MODULE,
    ) -> None:
        """Start `python -m` with `module`; `environment` is added to this process's."""
        self.name = name
        self.trials_expected: int | None = None
        self.search_threads = 0
        self._context = context
        self._warm_start = warm_start
        self._process = WorkerProcess(name, module, log=log, environment=environment)

    def prepare(self) -> TunerReady:
        """See `TunerUnderTest`."""
        self._process.greet()
        self._process.begin(TUNER, msgspec.msgpack.encode(self._context))
        ready = msgspec.msgpack.decode(self._order(PrepareTuner(), _PREPARE_SECONDS), type=TunerReady)
        tuner = self._context.tuner
        self.trials_expected = None if isinstance(tuner, KintuneSpec) else tuner.trials_per_subgraph * ready.tasks
        self.search_threads = ready.search_threads
        if self._warm_start is not None:
            self._order(self._warm_start(ready), _PREPARE_SECONDS)
        return ready

    def run_turn(self) -> bool:
        """See `TunerUnderTest`."""
        return msgspec.msgpack.decode(self._order(RunTurn(), _TURN_SECONDS), type=TurnEnded).finished

    def report(self) -> TurnReport:
        """See `TunerUnderTest`."""
        return msgspec.msgpack.decode(self._order(ReportTurn(), _TELL_SECONDS), type=TurnReport)

    def stop(self) -> None:
        """See `TunerUnderTest`."""
        self._process.stop()

    def resume(self) -> None:
        """See `TunerUnderTest`."""
        self._process.resume()

    def close(self) -> None:
        """End the process and all its children."""
        self._process.close()

    def _order(self, order: TunerRequest, seconds: float) -> bytes:
        return self._process.order(msgspec.msgpack.encode(order), seconds)
