"""The orders to a baseline process and its answers.  It imports neither TVM nor any baseline."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from kintune.core.model import Tensor
from kintune.validate.baselines.baseline import BaselineModel

__all__ = [
    "BASELINE_STAGE",
    "BaselineContext",
    "BaselineTimes",
    "BaselineTurn",
    "Order",
    "PrepareBaseline",
    "ProfileNodesTurn",
    "ProfileTurn",
]

BASELINE_STAGE = "contest"
"""The kind of stage and of worker of a baseline process."""


class BaselineContext(msgspec.Struct, frozen=True):
    """The runtime (`rival`, a name of `BASELINES`), the network (`subject`) and its inputs.

    `tensors` are the model's inputs in order; their values come from the `.npz` file `inputs`, or else from `seed`.
    The process keeps to the processors `cores`, one for each of `threads` where it is timed; of a network that runs on
    a `board` (the address of an RPC server), threads are the board's.  With `exact` the runtime keeps to the model's
    own arithmetic instead of being fast: its outputs are compared, and it is not timed.
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
    """The order to load and compile the network; its answer is empty, or a failure with the reason."""


class BaselineTurn(msgspec.Struct, frozen=True, tag="turn"):
    """The order to run: first untimed for `warm_seconds` (at least once if that is not 0), then timed.

    There are at most `runs` timed runs, and no more once they have taken `seconds`, but always one.  The outputs of
    the last run are written to the `.npz` file `outputs`, if that is given.  `inputs` is another `.npz` file to
    run on from now on; with `noise`, a seed other than 0, inputs and weights are perturbed by a few units in the last
    place, weights for good.
    """

    runs: int
    seconds: float
    warm_seconds: float = 0.0
    outputs: str | None = None
    inputs: str | None = None
    noise: int = 0


class BaselineTimes(msgspec.Struct, frozen=True):
    """The answer to a `BaselineTurn`: the time of each timed run in milliseconds.

    `denormals` says whether denormal numbers occurred in the thread that started the runs; of Kintune's own executables
    that is not known.
    """

    times_ms: tuple[float, ...]
    denormals: bool = False


class ProfileTurn(msgspec.Struct, frozen=True, tag="profile"):
    """The order to an executable for CPUs to time its kernels, each inside the network, on at most `threads` threads.

    There are at most `runs` runs, and no more once they have taken `seconds`, but always one.  The answer is a
    `KernelTimes`.
    """

    threads: int
    runs: int
    seconds: float


class ProfileNodesTurn(msgspec.Struct, frozen=True, tag="profile_nodes"):
    """The order to onnxruntime to time its nodes, each inside the network, with its own profiler.

    An executable that runs partly in onnxruntime takes it, too.

    There are at most `runs` runs, and no more once they have taken `seconds`, but always one.
    """

    runs: int
    seconds: float


Order: TypeAlias = PrepareBaseline | BaselineTurn | ProfileTurn | ProfileNodesTurn
