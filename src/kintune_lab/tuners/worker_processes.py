"""Build workers and a device worker without an engine; one that dies is replaced.  Free of TVM."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType

import msgspec

from kintune.core.candidate import Candidate
from kintune.core.device import DeviceDescription
from kintune.core.outcome import Outcome, Status
from kintune.core.stage_requests import BuildContext, BuildItem, Built, ProfileContext, ProfileItem
from kintune.errors import EngineError
from kintune.wire.worker_client import WorkerDied, WorkerProcess, WorkerRefused, WorkerTimedOut

__all__ = ["BuildWorkers", "DeviceWorker", "thread_variables"]

_SHOW_SECONDS = 1.0

_encode = msgspec.msgpack.encode


def thread_variables(threads: int) -> dict[str, str]:
    """The environment variables that limit the compiler's runtime and OpenMP to this number of threads."""
    return {"TVM_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}


class BuildWorkers:
    """Builds candidates in parallel, in `count` processes; one that dies or takes too long is replaced.

    Errors begin with `owner`.  The processes are started at once, but used only after `wait_ready`.  They end with the
    thread that starts them, and with `close`.  Use as a context manager.
    """

    def __init__(
        self,
        owner: str,
        count: int,
        context: BuildContext,
        log: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.seconds: dict[Candidate, float] = {}
        """Seconds of each build of the last call; none of those refused, the time limit of those that timed out."""
        self._owner = owner
        self._context = _encode(context)
        self._log = log
        self._environment = environment
        self._lock = threading.Lock()
        self._closed = False
        self._workers: list[WorkerProcess] = []
        self._idle: SimpleQueue[WorkerProcess] = SimpleQueue()
        self._pool = ThreadPoolExecutor(count)  # a replacement ends with its thread, so the threads live on
        for _ in range(count):
            self._start()

    def __enter__(self) -> BuildWorkers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def wait_ready(self) -> None:
        """Wait until all processes have started.

        Raises:
            EngineError: one of them has not.
        """
        for worker in self._workers:
            self._idle.put(self._greeted(worker))

    def build(
        self, candidates: Sequence[Candidate], limit_s: float, done: Callable[[int], None] = lambda count: None
    ) -> dict[Candidate, Built]:
        """Build all candidates, each within `limit_s`; `done` is called about every second with the number built."""
        self.seconds = {}
        futures = [self._pool.submit(self._build, candidate, limit_s) for candidate in candidates]
        waiting = set(futures)
        while waiting:
            done(sum(future.done() for future in futures))
            over, waiting = wait(waiting, timeout=_SHOW_SECONDS, return_when=FIRST_EXCEPTION)
            for future in over:
                future.result()
        return dict(zip(candidates, (future.result() for future in futures), strict=True))

    def close(self) -> None:
        """End all processes, whatever they are doing, and start no others."""
        with self._lock:
            self._closed = True
            for worker in self._workers:
                worker.close()
        self._pool.shutdown(cancel_futures=True)

    def _build(self, candidate: Candidate, limit_s: float) -> Built:
        worker = self._idle.get()
        begun = time.perf_counter()
        try:
            built = msgspec.msgpack.decode(worker.order(_encode(BuildItem(candidate)), limit_s), type=Built)
            self.seconds[candidate] = time.perf_counter() - begun
            return built
        except WorkerRefused as error:
            return Built(candidate.digest, failure=Outcome(Status.BUILD_FAILED, cause=str(error)))
        except WorkerDied as error:
            status = Status.BUILD_FAILED
            if isinstance(error, WorkerTimedOut):
                status = Status.BUILD_TIMED_OUT
                self.seconds[candidate] = time.perf_counter() - begun
            worker = self._replacement(worker)
            return Built(candidate.digest, failure=Outcome(status, cause=str(error)))
        finally:
            self._idle.put(worker)

    def _replacement(self, dead: WorkerProcess) -> WorkerProcess:
        with self._lock:
            if self._closed:
                raise EngineError(f"{self._owner} build workers are closed")
            dead.close()
            self._workers.remove(dead)
            worker = self._start()
        return self._greeted(worker)

    def _start(self) -> WorkerProcess:
        worker = _start(self._owner, "build", (), self._log, self._environment)
        self._workers.append(worker)
        return worker

    def _greeted(self, worker: WorkerProcess) -> WorkerProcess:
        worker.greet()
        worker.begin("build", self._context)
        return worker


class DeviceWorker:
    """Runs built programs, one at a time, in a device worker; it is replaced when it dies or takes too long.

    `target` is the canonical target (JSON) of the programs; errors begin with `owner`.  The process is started at once,
    but used only after `wait_ready`.
    """

    def __init__(
        self, owner: str, target: str, threads: int, log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self._owner = owner
        self._target = target
        self._threads = threads
        self._log = log
        self._environment = environment
        self._context = b""
        self._process = self._start()

    def wait_ready(self) -> DeviceDescription:
        """Wait until the process has started, and return the description of its device.

        Raises:
            EngineError: the process has not started, or the device has another target.
        """
        about = msgspec.msgpack.decode(self._process.greet(), type=DeviceDescription)
        if about.device_type.target != self._target:
            raise EngineError(f"{self._owner} device is of another target than the programs")
        return about

    def begin(self, context: ProfileContext) -> None:
        """Set the context of the programs that follow."""
        self._context = _encode(context)
        self._process.begin("profile", self._context)

    def run(self, workload: str, built: Built, limit_s: float) -> Outcome:
        """Check and time one program within `limit_s`.

        Raises:
            EngineError: a replacement of the worker has not started.
        """
        try:
            return msgspec.msgpack.decode(
                self._process.order(_encode(ProfileItem(workload, built)), limit_s), type=Outcome
            )
        except WorkerRefused as error:
            return Outcome(Status.RUN_FAILED, cause=str(error))
        except WorkerDied as error:
            self._process.close()
            self._process = self._start()
            self.wait_ready()
            self._process.begin("profile", self._context)
            status = Status.RUN_TIMED_OUT if isinstance(error, WorkerTimedOut) else Status.RUN_FAILED
            return Outcome(status, cause=str(error))

    def close(self) -> None:
        """End the process."""
        self._process.close()

    def _start(self) -> WorkerProcess:
        arguments = ("--target", "native", "--threads", str(self._threads))
        return _start(self._owner, "device", arguments, self._log, self._environment)


def _start(
    owner: str, kind: str, arguments: Sequence[str], log: Path, environment: Mapping[str, str] | None
) -> WorkerProcess:
    module = f"kintune.workers.{kind}_worker"
    return WorkerProcess(f"{owner} {kind} worker", module, arguments, log=log, environment=environment)
