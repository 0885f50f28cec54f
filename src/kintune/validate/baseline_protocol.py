"""What a contender's process is asked and what it answers; free of TVM and of every rival."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from kintune.core.model import Tensor
from kintune.validate.baselines.baseline import BaselineModel

__all__ = ["CONTEST", "BaselineContext", "BaselineTimes", "BaselineTurn", "Order", "PrepareBaseline"]

CONTEST = "contest"
"""The kind of stage that a contender's process serves, and of that worker."""


class BaselineContext(msgspec.Struct, frozen=True):
    """Who runs what on what: the context of all that follows.

    `tensors` are the model's inputs in order; their values come from the `.npz` file `inputs`, or else from `seed`.
    The process keeps to the processors `cores`, one for each of `threads` where it is timed; of a network that runs on
    a `board` (the address of an RPC server), threads are the board's.  With `exact` the runtime keeps to the model's
    own arithmetic instead of being fast: it is asked for numbers, not raced.
    """

    rival: str
    subject: BaselineModel
    tensors: tuple[Tensor, ...]
    inputs: str | None
    seed: int
    threads: int
    cores: tuple[int, ...]
    board: str = ""
    exact: bool = False


class PrepareBaseline(msgspec.Struct, frozen=True, tag="prepare"):
    """Load and compile the network; refused with the reason when this runtime cannot run it.  Answered by nothing."""


class BaselineTurn(msgspec.Struct, frozen=True, tag="turn"):
    """Run: first untimed for `warm_seconds` (at least once if that is not 0), then timed.

    There are at most `runs` timed runs, and no more once they have taken `seconds`, but always one.  The outputs of
    the last run are written to the `.npz` file `outputs`, if that is given.  With `inputs`, another `.npz` file than
    the contest's is run from now on; with `noise`, a seed other than 0, inputs and weights are moved by a few units in
    the last place, weights for good.
    """

    runs: int
    seconds: float
    warm_seconds: float = 0.0
    outputs: str | None = None
    inputs: str | None = None
    noise: int = 0


class BaselineTimes(msgspec.Struct, frozen=True):
    """The answer to a `BaselineTurn`: the time of each timed run in milliseconds."""

    times_ms: tuple[float, ...]


Order: TypeAlias = PrepareBaseline | BaselineTurn
