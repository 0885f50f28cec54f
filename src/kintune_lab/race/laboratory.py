"""The judge's laboratory: the build workers and the device worker of `kintune tune`, and its protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import ExitStack
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType

import msgspec

from kintune.core.candidate import UNTUNED, Candidate
from kintune.core.device import DeviceDescription
from kintune.core.outcome import Outcome, Status
from kintune.core.stage_requests import BuildContext, BuildItem, Built, ProfileContext, ProfileItem
from kintune.errors import EngineError
from kintune.wire.worker_client import WorkerDied, WorkerProcess, WorkerRefused
from kintune_lab.race.course import Course

__all__ = ["JudgeWorkers"]

_BUILD_SECONDS = 240.0  # more than the stock builder allows itself
_RUN_SECONDS = 120.0  # with the untuned program's run
_SHOW_SECONDS = 1.0

_encode = msgspec.msgpack.encode


class JudgeWorkers:
    """Implements `kintune_lab.race.judge.Laboratory` with `threads` build workers and one device worker.

    A worker that dies costs the program it was at, and is replaced.  Use as a context manager.
    """

    def __init__(self, course: Course, threads: int, log: Path) -> None:
        self._course = course
        self._threads = threads
        self._log = log
        self._device: WorkerProcess | None = None

    def __enter__(self) -> JudgeWorkers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def build(self, candidates: Sequence[Candidate], done: Callable[[int], None]) -> dict[Candidate, Built]:
        """See `Laboratory`."""
        waiting: SimpleQueue[Candidate] = SimpleQueue()
        for candidate in candidates:
            waiting.put(candidate)
        built: dict[Candidate, Built] = {}
        with ThreadPoolExecutor(self._threads) as pool, ExitStack() as started, ExitStack() as first:
            first.callback(_drain, waiting)  # before workers are closed, whose threads would start others
            working = {pool.submit(self._build_some, waiting, built, started) for _ in range(self._threads)}
            while working:
                done(len(built))
                over, working = wait(working, timeout=_SHOW_SECONDS, return_when=FIRST_COMPLETED)
                for future in over:
                    future.result()
        return built

    def measure(
        self, candidates: Sequence[Candidate], built: Mapping[Candidate, Built], done: Callable[[int], None]
    ) -> dict[Candidate, Outcome]:
        """See `Laboratory`."""
        outcomes: dict[Candidate, Outcome] = {}
        for candidate in candidates:
            done(len(outcomes))
            device = self._device_for(built)
            item = _encode(ProfileItem(candidate.workload, built[candidate]))
            try:
                outcomes[candidate] = msgspec.msgpack.decode(device.order(item, _RUN_SECONDS), type=Outcome)
            except WorkerRefused as error:
                outcomes[candidate] = Outcome(Status.RUN_FAILED, cause=str(error))
            except WorkerDied as error:
                self._close()
                outcomes[candidate] = Outcome(Status.RUN_FAILED, cause=str(error))
        return outcomes

    def _build_some(self, waiting: SimpleQueue[Candidate], built: dict[Candidate, Built], started: ExitStack) -> None:
        context = _encode(BuildContext(self._course.ground.target, self._course.ground.modules, self._course.sketches))
        worker: WorkerProcess | None = None
        while (candidate := _next(waiting)) is not None:
            if worker is None:
                worker = started.enter_context(self._start("build"))
                worker.greet()
                worker.begin("build", context)
            try:
                answer = worker.order(_encode(BuildItem(candidate)), _BUILD_SECONDS)
                built[candidate] = msgspec.msgpack.decode(answer, type=Built)
            except WorkerRefused as error:
                built[candidate] = Built(candidate.digest, failure=Outcome(Status.BUILD_FAILED, cause=str(error)))
            except WorkerDied as error:
                worker = None
                built[candidate] = Built(candidate.digest, failure=Outcome(Status.BUILD_FAILED, cause=str(error)))

    def _device_for(self, built: Mapping[Candidate, Built]) -> WorkerProcess:
        """The device worker, told of the untuned programs that everything is checked against."""
        if self._device is None:
            device = self._device = self._start("device", "--target", "native", "--threads", str(self._threads))
            about = msgspec.msgpack.decode(device.greet(), type=DeviceDescription)
            if about.device_type.target != self._course.ground.target:
                raise EngineError("the judge's device is of another target than the programs")
            references = {c.workload: b for c, b in built.items() if c.sketch == UNTUNED and b.failure is None}
            protocol = about.protocol_for(self._course.ground.subgraphs)
            device.begin("profile", _encode(ProfileContext(protocol, references)))
        return self._device

    def _start(self, kind: str, *arguments: str) -> WorkerProcess:
        environment = {"TVM_NUM_THREADS": str(self._threads), "OMP_NUM_THREADS": str(self._threads)}
        return WorkerProcess(
            f"the judge's {kind} worker",
            f"kintune.workers.{kind}_worker",
            arguments,
            log=self._log,
            environment=environment,
        )

    def _close(self) -> None:
        if self._device is not None:
            self._device.close()
            self._device = None


def _next(waiting: SimpleQueue[Candidate]) -> Candidate | None:
    try:
        return waiting.get_nowait()
    except Empty:
        return None


def _drain(waiting: SimpleQueue[Candidate]) -> None:
    while _next(waiting) is not None:
        pass
