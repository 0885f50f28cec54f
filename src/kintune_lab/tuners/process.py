"""The process of a tuner under test: `python -m kintune_lab.tuners.process --fd N`, started by a race."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from kintune.errors import OrderError, WireError
from kintune.integrations.stock import FamilyCostModel, FamilyTaskScheduler
from kintune.wire import worker_loop as worker
from kintune_lab.tuners.kintune_tuner import KintuneTuner
from kintune_lab.tuners.measurement import STOCK_TOOLS, StockTools
from kintune_lab.tuners.messages import (
    TUNER,
    KintuneSpec,
    PrepareTuner,
    ReportTurn,
    RunTurn,
    StockFamilySpec,
    StockSpec,
    TunerContext,
    TunerRequest,
    TurnEnded,
    TurnReport,
    WarmStart,
)
from kintune_lab.tuners.setup import SharedSetup, prepare_setup
from kintune_lab.tuners.stock_tuner import StockTuner

__all__ = ["TunerHandler", "main"]

_ORDERS: msgspec.msgpack.Decoder[TunerRequest] = msgspec.msgpack.Decoder(TunerRequest)


class _Tuner(Protocol):
    def turn(self) -> bool: ...

    def report(self) -> TurnReport: ...


class TunerHandler:
    """Handles a `TunerContext`, then `PrepareTuner`, perhaps `WarmStart`, then `RunTurn` and `ReportTurn` in turn."""

    def __init__(self, tools: StockTools = STOCK_TOOLS) -> None:
        self._tools = tools
        self._context: TunerContext | None = None
        self._tuner: _Tuner | None = None

    def begin(self, kind: str, context: bytes) -> None:
        """Keep the description of the race."""
        if kind != TUNER:
            raise WireError(f"a tuner was asked for a stage of kind {kind!r}")
        self._context = msgspec.msgpack.decode(context, type=TunerContext)

    def item(self, payload: bytes) -> bytes:
        """Answer one request."""
        match _ORDERS.decode(payload):
            case PrepareTuner():
                return self._prepare()
            case WarmStart() as warm_start:
                tuner = self._prepared()
                if not isinstance(tuner, KintuneTuner):
                    raise OrderError("the stock tuner cannot be taught")
                tuner.teach(warm_start)
                return b""
            case RunTurn():
                return msgspec.msgpack.encode(TurnEnded(self._prepared().turn()))
            case ReportTurn():
                return msgspec.msgpack.encode(self._prepared().report())

    def _prepare(self) -> bytes:
        context = self._context
        if context is None:
            raise OrderError("a tuner was asked to prepare before it had its context")
        setup = prepare_setup(context.model, context.threads)
        ready = setup.ready()
        self._tuner = _enter(context, setup, ready.tasks, self._tools)
        return msgspec.msgpack.encode(ready)

    def _prepared(self) -> _Tuner:
        if self._tuner is None:
            raise OrderError("a tuner was given a turn before it was prepared")
        return self._tuner


def main(argv: Sequence[str] | None = None) -> None:
    """Serve until the race closes the channel."""
    worker.main(TUNER, lambda _arguments: (b"", TunerHandler()), argv)


def _enter(context: TunerContext, setup: SharedSetup, tasks: int, tools: StockTools) -> _Tuner:
    match context.tuner:
        case KintuneSpec() as ours:
            return KintuneTuner(setup, ours, context.seed, Path(context.directory), tools)
        case StockSpec(trials_per_subgraph=each):
            return StockTuner(setup, Path(context.directory), each * tasks, context.seed, tools=tools)
        case StockFamilySpec(trials_per_subgraph=each, families=families, foresee=foresee):
            arguments = {
                "cost_model": FamilyCostModel(families, threads=context.threads),
                "task_scheduler": FamilyTaskScheduler(foresee),
            }
            return StockTuner(setup, Path(context.directory), each * tasks, context.seed, arguments, tools)


if __name__ == "__main__":
    main()
