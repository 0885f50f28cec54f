"""The process of one runtime whose latency is compared: started, given orders under deadlines, stopped in between.

Why a process each, stopped by the kernel when it is not its turn: thread pools spin between runs, some for
milliseconds and some for good, and would take the cores from whoever runs next; see docs/design/validation.md.
"""

from __future__ import annotations

import time
from types import TracebackType

import msgspec

from kintune.core.call_times import KernelTimes
from kintune.validate.baseline_protocol import (
    BASELINE_STAGE,
    BaselineContext,
    BaselineTimes,
    BaselineTurn,
    Order,
    PrepareBaseline,
    ProfileNodesTurn,
    ProfileTurn,
)
from kintune.validate.baselines.node_times import NodeTimes
from kintune.wire.worker_client import WorkerProcess

__all__ = ["BaselineProcess"]


class BaselineProcess:
    """One runtime in a process of its own, which is stopped except during `prepare` and `turn`.  A context manager.

    After an error it can only be closed.
    """

    def __init__(self, name: str, context: BaselineContext) -> None:
        self.name = name
        self.met_denormals = False
        """Whether denormal numbers occurred in any turn (see `BaselineTimes`)."""
        self._context = context
        threads = str(context.threads)
        environment = {"TVM_NUM_THREADS": threads, "OMP_NUM_THREADS": threads}
        self._worker = WorkerProcess("", "kintune.validate.baseline_worker", environment=environment)

    def __enter__(self) -> BaselineProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def prepare(self, seconds: float) -> None:
        """Load and compile the network within `seconds`.

        Raises:
            EngineError: the runtime cannot run the network, failed, died, or took too long; the message is the reason.
        """
        deadline = time.monotonic() + seconds
        self._worker.greet(seconds)
        self._worker.begin(BASELINE_STAGE, msgspec.msgpack.encode(self._context))
        self._order(PrepareBaseline(), deadline - time.monotonic())

    def turn(self, turn: BaselineTurn, seconds: float) -> tuple[float, ...]:
        """Takes a turn within `seconds`, and returns the times of its timed runs in milliseconds.

        Raises:
            EngineError: as for `prepare`.
        """
        taken = msgspec.msgpack.decode(self._order(turn, seconds), type=BaselineTimes)
        self.met_denormals |= taken.denormals
        return taken.times_ms

    def profile(self, turn: ProfileTurn, seconds: float) -> dict[int, float]:
        """Times the kernels of an executable for CPUs within `seconds`; returns microseconds by place in the plan.

        Raises:
            EngineError: as for `prepare`.
        """
        return self.profile_calls(turn, seconds).us

    def profile_calls(self, turn: ProfileTurn, seconds: float) -> KernelTimes:
        """As `profile`, with the times of one run.

        Raises:
            EngineError: as for `prepare`.
        """
        return msgspec.msgpack.decode(self._order(turn, seconds), type=KernelTimes)

    def profile_nodes(self, turn: ProfileNodesTurn, seconds: float) -> NodeTimes:
        """Times the nodes of onnxruntime's graph within `seconds`.

        Raises:
            EngineError: as for `prepare`.
        """
        return msgspec.msgpack.decode(self._order(turn, seconds), type=NodeTimes)

    def close(self) -> None:
        """End the process, whatever it is doing."""
        self._worker.close()

    def _order(self, order: Order, seconds: float) -> bytes:
        """Have an order done; afterwards the process is stopped, also where it failed."""
        self._worker.resume()
        try:
            return self._worker.order(msgspec.msgpack.encode(order), seconds)
        finally:
            self._worker.stop()
