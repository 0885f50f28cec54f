"""A contestant's process: `python -m kintune_lab.contest.contestant --fd N`, started by a race."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from kintune.errors import OrderError, WireError
from kintune.integrations.stock import FamilyCostModel, FamilyTaskScheduler
from kintune.wire import worker_loop as worker
from kintune_lab.contest.ground import ContestGround, lay_ground
from kintune_lab.contest.orders import (
    CONTESTANT,
    ContestContext,
    Go,
    Halted,
    Order,
    Ours,
    PrepareContestant,
    Stock,
    StockFamily,
    Teach,
    Tell,
    Turned,
)
from kintune_lab.contest.ours import OurTuner
from kintune_lab.contest.stock import StockTuner
from kintune_lab.contest.stock_tools import STOCK_TOOLS, StockTools

__all__ = ["ContestantHandler", "main"]

_ORDERS: msgspec.msgpack.Decoder[Order] = msgspec.msgpack.Decoder(Order)


class _Tuner(Protocol):
    def turn(self) -> bool: ...

    def tell(self) -> Turned: ...


class ContestantHandler:
    """A `ContestContext` to begin with, then `PrepareContestant`, perhaps `Teach`, then `Go` and `Tell` in turn."""

    def __init__(self, tools: StockTools = STOCK_TOOLS) -> None:
        self._tools = tools
        self._contest: ContestContext | None = None
        self._tuner: _Tuner | None = None

    def begin(self, kind: str, context: bytes) -> None:
        """Be told the contest."""
        if kind != CONTESTANT:
            raise WireError(f"a contestant was asked for a stage of kind {kind!r}")
        self._contest = msgspec.msgpack.decode(context, type=ContestContext)

    def item(self, payload: bytes) -> bytes:
        """Obey one order."""
        match _ORDERS.decode(payload):
            case PrepareContestant():
                return self._prepare()
            case Teach() as lesson:
                tuner = self._prepared()
                if not isinstance(tuner, OurTuner):
                    raise OrderError("the stock tuner cannot be taught")
                tuner.teach(lesson)
                return b""
            case Go():
                return msgspec.msgpack.encode(Halted(self._prepared().turn()))
            case Tell():
                return msgspec.msgpack.encode(self._prepared().tell())

    def _prepare(self) -> bytes:
        contest = self._contest
        if contest is None:
            raise OrderError("a contestant was asked to prepare before it was told the contest")
        ground = lay_ground(contest.model, contest.threads)
        ready = ground.ready()
        self._tuner = _enter(contest, ground, ready.tasks, self._tools)
        return msgspec.msgpack.encode(ready)

    def _prepared(self) -> _Tuner:
        if self._tuner is None:
            raise OrderError("a contestant was given a turn before it was prepared")
        return self._tuner


def main(argv: Sequence[str] | None = None) -> None:
    """Serve until the race closes the channel."""
    worker.main(CONTESTANT, lambda _arguments: (b"", ContestantHandler()), argv)


def _enter(contest: ContestContext, ground: ContestGround, tasks: int, tools: StockTools) -> _Tuner:
    match contest.tuner:
        case Ours() as ours:
            return OurTuner(ground, ours, contest.seed, Path(contest.directory), tools)
        case Stock(trials_per_subgraph=each):
            return StockTuner(ground, Path(contest.directory), each * tasks, contest.seed, tools=tools)
        case StockFamily(trials_per_subgraph=each, families=families, foresee=foresee):
            arguments = {
                "cost_model": FamilyCostModel(families, threads=contest.threads),
                "task_scheduler": FamilyTaskScheduler(foresee),
            }
            return StockTuner(ground, Path(contest.directory), each * tasks, contest.seed, arguments, tools)


if __name__ == "__main__":
    main()
