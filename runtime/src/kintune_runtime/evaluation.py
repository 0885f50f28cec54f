"""Times of an executable: of whole runs, and of what runs inside of one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

import numpy as np

from .errors import RunError

__all__ = ["Evaluation", "KernelTime", "evaluate_streams", "timed"]


class Runs(Protocol):
    """What one stream runs."""

    def run(self, *inputs: Any) -> Any:
        """Run once."""

    def close(self) -> None:
        """Free everything."""


class Evaluation(NamedTuple):
    """Latencies of repeated runs in milliseconds: the median, the 10th and 90th percentile, and all of them in order.

    `spread` is (p90 - p10) / median: 0.02 is usual on an idle machine; at 0.2 the times cannot be relied on.
    `per_second` is the number of runs that ended each second, of all streams together; `p99_ms` is the 99th percentile.
    Percentiles between two latencies are interpolated linearly.
    """

    median_ms: float
    p10_ms: float
    p90_ms: float
    spread: float
    times_ms: tuple[float, ...]
    p99_ms: float = 0.0
    per_second: float = 0.0

    @classmethod
    def of(cls, times_ms: Sequence[float], seconds: float = 0.0) -> Evaluation:
        """Summarise at least one latency; `seconds` is how long all of it took."""
        p10, median, p90, p99 = (float(np.quantile(times_ms, q)) for q in (0.1, 0.5, 0.9, 0.99))
        rate = len(times_ms) / seconds if seconds else 0.0
        return cls(median, p10, p90, (p90 - p10) / median if median else 0.0, tuple(times_ms), p99, rate)


class KernelTime(NamedTuple):
    """A call of a kernel in one run: its place in the plan, and the microseconds that it took.

    `start_us` is when it began, in microseconds since the run did.  A node that onnxruntime runs has its `operator`.
    """

    place: int
    kernel: str
    us: float
    start_us: float = 0.0
    operator: str = ""


def evaluate_streams(
    contexts: Sequence[Runs], given: tuple[Any, ...], repeats: int, warmups: int, max_seconds: float
) -> Evaluation:
    """Time runs on `given`, of all contexts at once, each in a thread of its own; the contexts are closed then.

    Each makes `warmups` untimed runs, then `repeats` timed ones, fewer if `max_seconds` pass.

    Raises:
        InputError: as a run does.
        RunError: as a run does.
    """
    times: list[list[float]] = [[] for _ in contexts]
    failures: list[BaseException] = []
    ready = threading.Barrier(len(contexts) + 1)
    deadline = time.perf_counter() + max_seconds

    def stream(number: int) -> None:
        context = contexts[number]
        try:
            for _ in range(warmups):
                context.run(*given)
        except BaseException as error:
            failures.append(error)
        try:
            ready.wait()
            if not failures:
                times[number] = timed(lambda: context.run(*given), repeats, 0, deadline)
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=stream, args=(number,), daemon=True) for number in range(len(contexts))]
    try:
        for worker in workers:
            worker.start()
        ready.wait()
        begun = time.perf_counter()
        for worker in workers:
            worker.join()
        seconds = time.perf_counter() - begun
    finally:
        ready.abort()  # where a thread cannot be started, the others do not wait for it
        for context in contexts:
            with suppress(RunError):  # after an interrupt it may run; it is freed after that
                context.close()
    if failures:
        raise failures[0]
    return Evaluation.of([each for stream_times in times for each in stream_times], seconds)


def timed(run: Callable[[], Any], repeats: int, warmups: int, deadline: float) -> list[float]:
    """Milliseconds of up to `repeats` runs, at least one; warm-ups come before them."""
    for _ in range(warmups):
        run()
        if time.perf_counter() > deadline:
            break
    times: list[float] = []
    while not times or (len(times) < repeats and time.perf_counter() < deadline):
        begun = time.perf_counter()
        run()
        times.append((time.perf_counter() - begun) * 1e3)
    return times
