"""Our candidates through the build workers and the device worker of `kintune tune`, under its protocol."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import SimpleQueue

import msgspec
import tvm

from kintune.compiler.space.replay import save_workload
from kintune.core.candidate import Candidate, Sketch
from kintune.core.device import DeviceDescription
from kintune.core.outcome import Outcome, Status
from kintune.core.stage_requests import BuildContext, BuildItem, Built, ProfileContext, ProfileItem
from kintune.errors import EngineError
from kintune.search.build_costs import patience_s
from kintune.tuning.job.finalists import FINALISTS
from kintune.tuning.job.stage_factory import BUILD_S, PROFILE_S, REFERENCE_S, SLOW
from kintune.wire.worker_client import WorkerDied, WorkerProcess, WorkerRefused, WorkerTimedOut
from kintune_lab.contest.ground import ContestGround
from kintune_lab.contest.laps import Laps

__all__ = ["OwnMeasurements"]

_encode = msgspec.msgpack.encode


class OwnMeasurements:
    """As many build workers as threads, and one device worker; they live as long as this process.

    Between rounds they wait for orders, so that nothing of them need be stopped.  One that dies, or takes too long,
    costs the candidate it was at, as in a tuning job, and is replaced.
    """

    def __init__(self, ground: ContestGround, sketches: Mapping[str, Sketch], log: Path, laps: Laps) -> None:
        self._ground = ground
        self._log = log
        self._laps = laps
        modules = {w.digest: save_workload(w.module) for w in ground.lowered.workloads}
        self._context = _encode(BuildContext(ground.canonical, modules, dict(sketches)))
        self._pool = ThreadPoolExecutor(ground.threads)  # a worker ends with the thread that started it: these live on
        self._idle: SimpleQueue[WorkerProcess] = SimpleQueue()
        self._references: dict[str, Built] = {}
        self._kept: dict[Candidate, Built] = {}
        self._times_us: dict[Candidate, float] = {}
        self._seconds: dict[Candidate, float] = {}
        self._taken: list[float] = []  # seconds of all builds so far
        starting = [self._start_builder() for _ in range(ground.threads)]  # all of them, before any is waited for
        device = self._start_device()
        for worker in starting:
            self._idle.put(self._ready_builder(worker))
        self._device, self._about = self._ready_device(device)

    def measure(
        self,
        candidates: Sequence[Candidate],
        program: Callable[[Candidate], tvm.IRModule],
        best_us: Mapping[str, float],
        again: Sequence[Candidate] = (),
    ) -> list[Outcome]:
        """See `kintune_lab.contest.stock_bench.Measurements`; workers make programs themselves."""
        del program
        with self._laps.stage("build"):
            self._seconds.clear()
            workloads = dict.fromkeys(c.workload for c in candidates)
            untuned = [Candidate.untuned(workload) for workload in workloads if workload not in self._references]
            limit_s = BUILD_S if untuned else patience_s(self._taken, BUILD_S)
            kept = {c: self._kept[c] for c in again if c in self._kept}
            missing = [*untuned, *(c for c in candidates if c not in kept)]
            made = dict(zip(missing, self._pool.map(partial(self._build, limit_s=limit_s), missing), strict=True))
            built = [kept[c] if c in kept else made[c] for c in [*untuned, *candidates]]
            self._taken += self._seconds.values()
            self._references.update(zip((c.workload for c in untuned), built, strict=False))
        with self._laps.stage("profile"):
            best = {w: best_us[w] for w in workloads if math.isfinite(best_us.get(w, math.inf))}
            references = {workload: self._references[workload] for workload in workloads}
            protocol = self._about.protocol_for([w.subgraph(tunable=True) for w in self._ground.lowered.workloads])
            digests = tuple(candidate.digest for candidate in again)
            context = _encode(ProfileContext(protocol, references, best_us=best, slow=SLOW, again=digests))
            outcomes = list(self._profiled(candidates, built[len(untuned) :], context))
        self._keep(dict(zip(candidates, built[len(untuned) :], strict=True)), outcomes)
        return outcomes

    def build_seconds(self, candidate: Candidate) -> float:
        """See `Bench`; 0 also for those that could not be built, but for what took too long."""
        return self._seconds.get(candidate, 0.0)

    def close(self) -> None:
        """End the workers."""
        self._pool.shutdown()
        self._device.close()
        while not self._idle.empty():
            self._idle.get().close()

    def _keep(self, built: Mapping[Candidate, Built], outcomes: Sequence[Outcome]) -> None:
        """Of each workload the fastest programs, which will be timed again: so does a tuning job."""
        for candidate, outcome in zip(built, outcomes, strict=True):
            if outcome.ok:
                self._kept[candidate], self._times_us[candidate] = built[candidate], outcome.median_us
        for workload in dict.fromkeys(candidate.workload for candidate in built):
            ranked = sorted((c for c in self._kept if c.workload == workload), key=self._times_us.__getitem__)
            for candidate in ranked[FINALISTS:]:
                del self._kept[candidate], self._times_us[candidate]

    def _build(self, candidate: Candidate, limit_s: float) -> Built:
        worker = self._idle.get()
        begun = time.perf_counter()
        try:
            built = msgspec.msgpack.decode(worker.order(_encode(BuildItem(candidate)), limit_s), type=Built)
            self._seconds[candidate] = time.perf_counter() - begun
            return built
        except WorkerRefused as error:
            return Built(candidate.digest, failure=Outcome(Status.BUILD_FAILED, cause=str(error)))
        except WorkerDied as error:
            status = Status.BUILD_FAILED
            if isinstance(error, WorkerTimedOut):
                status = Status.BUILD_TIMED_OUT
                self._seconds[candidate] = time.perf_counter() - begun
            worker = self._ready_builder(self._start_builder())
            return Built(candidate.digest, failure=Outcome(status, cause=str(error)))
        finally:
            self._idle.put(worker)

    def _profiled(self, candidates: Sequence[Candidate], built: Sequence[Built], context: bytes) -> Iterator[Outcome]:
        self._device.begin("profile", context)
        for candidate, each in zip(candidates, built, strict=True):
            item = _encode(ProfileItem(candidate.workload, each))
            try:
                yield msgspec.msgpack.decode(self._device.order(item, PROFILE_S + REFERENCE_S), type=Outcome)
            except WorkerRefused as error:
                yield Outcome(Status.RUN_FAILED, cause=str(error))
            except WorkerDied as error:
                self._device.close()
                self._device, self._about = self._ready_device(self._start_device())
                self._device.begin("profile", context)
                status = Status.RUN_TIMED_OUT if isinstance(error, WorkerTimedOut) else Status.RUN_FAILED
                yield Outcome(status, cause=str(error))

    def _start_builder(self) -> WorkerProcess:
        return self._start("build")

    def _ready_builder(self, worker: WorkerProcess) -> WorkerProcess:
        worker.greet()
        worker.begin("build", self._context)
        return worker

    def _start_device(self) -> WorkerProcess:
        threads = str(self._ground.threads)
        return self._start("device", "--target", "native", "--threads", threads)

    def _ready_device(self, device: WorkerProcess) -> tuple[WorkerProcess, DeviceDescription]:
        about = msgspec.msgpack.decode(device.greet(), type=DeviceDescription)
        if about.device_type.target != self._ground.canonical:
            raise EngineError("the device is of another target than the programs")
        return device, about

    def _start(self, kind: str, *arguments: str) -> WorkerProcess:
        return WorkerProcess(f"our {kind} worker", f"kintune.workers.{kind}_worker", arguments, log=self._log)
