"""Makes tuning runs from the jobs in the database, and says where the processes of jobs run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from kintune.core.config import Options
from kintune.core.device import DeviceDescription
from kintune.core.model import ModelRef
from kintune.core.report import RunReport
from kintune.core.stage_results import StageName
from kintune.errors import InputError, JobFailed, StorageError
from kintune.hardware.toolchain import find_linker, find_nvcc
from kintune.models.constants import constant_of
from kintune.records import RunState, Store
from kintune.scheduler.resources import Host, Resource
from kintune.service.blob_store import BlobStore
from kintune.service.job_repository import Job
from kintune.service.job_request import TIMED_BESIDE
from kintune.service.machines import DeviceTypes
from kintune.service.model_store import ModelStore, shortened
from kintune.service.readable_paths import without_paths
from kintune.service.settings import ServiceSettings
from kintune.tuning.front.placement import HOST, CorePlacement, MeasurementSite, memory_mb
from kintune.tuning.front.request import TuneRequest, check_until
from kintune.tuning.front.tuning_run import TuningRun
from kintune.validate.baselines import run_on
from kintune.wire.channel import UNREADABLE
from kintune.wire.child import ResourceLimits
from kintune.workers.engine.process import Anywhere, Command
from kintune.workers.engine.work_limits import WorkLimits

__all__ = ["LEAST_CHECK_MINUTES", "JobHosts", "RunFactory"]
LEAST_CHECK_MINUTES = 2.0
"""How long checking a model may take at least."""

_MEMORY_ELSEWHERE_MB = 24 * 1024
_LEAST_MEMORY_MB = 4 * 1024  # libraries and stacks reserve a gigabyte of it
_KEPT_FREE = 1 / 8  # of the machine's memory, for the service itself
_CHECK_KINDS = (
    StageName.PREPARE,
    StageName.BUILD,
    StageName.DRAFT,
    StageName.EXPLAIN,
    StageName.CHECK,
    StageName.BASELINE,
    StageName.PEAK,
)


class JobHosts:
    """Which hosts run the processes of jobs, and how those processes are started."""

    def __init__(self, settings: ServiceSettings, place: CorePlacement) -> None:
        """`place` has the cores and devices of this machine that the service uses.

        Raises:
            InputError: nodes of a cluster would disturb this machine's own device.
        """
        self._place = place
        self._local = settings.engine == "local"
        self._cores = settings.cores_a_job
        self._at_once = settings.jobs_at_once
        if not self._local and place.shared:
            raise InputError(
                f"--engine {settings.engine}: nodes of a cluster may build on any core of this machine; give its own "
                "device cores that it has alone: --device cpu:1"
            )

    @property
    def home(self) -> str | None:
        """The host of all jobs' own processes; None where each may run on another."""
        return HOST if self._local else None

    @property
    def cores(self) -> int:
        """How many cores a job's own stages and its builds take."""
        if self._cores:
            return self._cores
        return max(1, len(self._place.host) // min(self._at_once, len(self._place.host))) if self._local else 1

    @property
    def memory_mb(self) -> int:
        """The MiB that a job's own process may map: here, what is left to the service by the number of its slots."""
        if not self._local:
            return _MEMORY_ELSEWHERE_MB
        return max(_LEAST_MEMORY_MB, int(memory_mb() * (1 - _KEPT_FREE)) // self._at_once)

    def resources(self) -> list[Resource]:
        """Returns the resources of this machine for the scheduler; its cores are left out if a cluster offers them."""
        return [each for each in self._place.resources() if self._local or not isinstance(each, Host)]

    def command(self, module: str, memory_mb: int | None = None) -> Command | Anywhere:
        """How a process of a job is started."""
        if self._local:
            return self._place.on_host(module, memory_mb=memory_mb)
        threads = {"TVM_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        return Anywhere(module, environment=threads, limits=ResourceLimits(address_space_mb=memory_mb))


class RunFactory:
    """Makes the tuning run of a job: its model, its working directory, its device and its limits."""

    def __init__(
        self,
        settings: ServiceSettings,
        models: ModelStore,
        blobs: BlobStore,
        store: Store,
        placement: CorePlacement,
        job_hosts: JobHosts,
        about: DeviceDescription,
        types: DeviceTypes,
    ) -> None:
        """`about` is this machine's own device; all others are of `types` that machines elsewhere have brought."""
        self._about = about
        self._types = types
        self._settings = settings
        self._models = models
        self._blobs = blobs
        self._store = store
        self._placement = placement
        self._job_hosts = job_hosts

    @property
    def cores(self) -> int:
        """How many cores a job's own stages and its builds take."""
        return self._job_hosts.cores

    @property
    def command(self) -> Command | Anywhere:
        """How a job's process is started, with limited memory: a faulty import must not take the machine with it."""
        return self._job_hosts.command("kintune.tuning.job.process", self._job_hosts.memory_mb)

    @property
    def home(self) -> str | None:
        """The host of all jobs' own processes; None where each may run on another."""
        return self._job_hosts.home

    def limits(self, job: Job) -> WorkLimits:
        """How long a job may be at work, by its minutes: on its check, and on one item of each stage."""
        most_s = min(60 * self._settings.check_minutes, 60 * max(LEAST_CHECK_MINUTES, job.wanted.minutes or 0.0))
        return WorkLimits(_CHECK_KINDS, most_s, most_s)

    def tuning_run(self, job: Job, usable: Callable[[str], int]) -> tuple[DeviceDescription, TuningRun]:
        """Returns the device that a job is measured on, and its run, new or to be resumed.

        `usable` says how many devices of a type there are now.

        Raises:
            InputError: the job cannot be tuned here.
            StorageError: its working directory cannot be made.
        """
        wanted, settings = job.wanted, self._settings
        about, site = self._site(wanted.device, usable)
        model = self._models.of_job(job.model)
        work = self._work(job)
        try:
            work.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"{work}: cannot be made ({error.strerror})") from error
        options = Options.of(wanted, compare=TIMED_BESIDE, search=wanted.search)
        reference = ModelRef(
            "onnx",
            str(self._blobs.path(model.file)),
            model.name,
            constants={name: constant_of(name, value) for name, value in wanted.constants.items()},
        )
        if wanted.until is not None:
            device = "" if run_on(about.device_type) else repr(wanted.device)
            check_until(wanted.until, reference, TIMED_BESIDE, device)
        inputs, calibration = self._sets("compared", wanted.inputs, work), self._sets("inputs", wanted.calibrate, work)
        request = TuneRequest(
            model=reference.with_combinations(wanted.combinations()),
            target=settings.target if site.device == self._placement.type else about.device_type.target,
            device=settings.device if site.device == self._placement.type else site.device,
            options=options,
            records=settings.records,
            inputs=tuple(inputs),
            calibration=tuple(calibration),
            output=str(work / f"{shortened(model.name)}.kt"),
            priority=job.priority,
            isolate=self._job_hosts.home is not None and settings.isolates,
            digests={reference.source: model.file, **inputs, **calibration},  # nothing need be read here for that
        )
        return about, TuningRun(request, self._store, site, owner=job.retry_of or job.id, details="the job's log")

    def readable(self, job: Job, text: str) -> str:
        """Returns a line of an error or a log with the names of the job's files in place of the service's paths."""
        model = self._models.of_job(job.model)
        return without_paths(text, self._settings.data, {str(self._blobs.path(model.file)): f"{model.name}.onnx"})

    def _sets(self, called: str, ids: Sequence[int], work: Path) -> dict[str, str]:
        """Links uploaded sets of inputs into the working directory, where they stay as long as the job.

        The links are `called` so, and numbered.  Returns their digests by path.

        Raises:
            InputError: one is gone.
            StorageError: the links cannot be made.
        """
        digests = {}
        for number, id in enumerate(ids):
            stored = self._models.of_job(id)
            name = shortened(stored.name)
            path, source = work / f"{called}{number}-{name}.npz", self._blobs.path(stored.file)
            if not path.exists():
                if not source.exists():
                    raise InputError(f"the set of inputs {id} is gone; upload it again, and retry the job")
                try:
                    os.link(source, path)
                except OSError:  # on another file system
                    _copy(source, path)
            digests[str(path)] = stored.file
        return digests

    def is_away(self, device: str, usable: Callable[[str], int]) -> bool:
        """Whether this service knows a type of devices, and none of them can be used now.

        `usable` says how many devices of a type there are now.
        """
        is_elsewhere = device != self._settings.device_name
        return is_elsewhere and not usable(device) and self._types.get(device) is not None

    def came_of(self, job: Job) -> RunReport | None:
        """Returns the report of a job's run that is over though the job is not: the orchestrator ended in between.

        None if the job is still to be tuned: there is no such run, or the executable that it made is gone.

        Raises:
            JobFailed: the run has failed.
        """
        run = None if job.run_id is None else self._store.runs.find(job.run_id)
        if run is None:
            return None
        if run.state is RunState.FAILED:
            raise JobFailed("its run has failed, and the service was stopped before the cause was written down")
        if run.state is not RunState.FINISHED or run.summary is None:
            return None
        try:
            report = msgspec.json.decode(run.summary, type=RunReport)
        except UNREADABLE:  # another version has written it
            return None
        return report if Path(report.output).is_file() else None

    def clean_up(self, job: Job) -> None:
        """Removes a job's working directory."""
        shutil.rmtree(self._work(job), ignore_errors=True)

    def clean_up_all_but(self, jobs: Iterable[Job]) -> None:
        """Removes the working directories of all other jobs: an orchestrator was killed before it could."""
        kept = {job.id for job in jobs}
        for left in self._settings.work.iterdir():
            if left.name not in kept:
                shutil.rmtree(left, ignore_errors=True)

    def _site(self, device: str, usable: Callable[[str], int]) -> tuple[DeviceDescription, MeasurementSite]:
        if device == self._settings.device_name:
            return self._about, self._placement.site()
        if (about := self._types.get(device)) is None:
            known = ", ".join(repr(name) for name in (self._settings.device_name, *self._types.all()))
            raise InputError(f"no device of type {device!r} belongs to this service; there is {known}")
        kind = about.device_type
        find_linker(about.machine.architecture)  # the finished network is compiled and linked here
        if kind.capabilities.compiler:
            find_nvcc()
        return about, MeasurementSite(device, max(1, usable(device)), kind.threads, kind.model)

    def _work(self, job: Job) -> Path:
        return self._settings.work / job.id


def _copy(source: Path, path: Path) -> None:
    """Copies a file, whole or not at all.

    Raises:
        StorageError: it cannot be written.
    """
    begun = path.with_name(f"{path.name[:64]}.part")
    try:
        shutil.copyfile(source, begun)
        os.replace(begun, path)
    except OSError as error:
        raise StorageError(f"{path}: cannot be written ({error.strerror})") from error
