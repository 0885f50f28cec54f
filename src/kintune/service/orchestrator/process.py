"""The orchestrator: `python -m kintune.service.orchestrator.process SETTINGS.json`, started by `kintune serve`."""

from __future__ import annotations

import logging
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import msgspec

from kintune.core.device import DeviceDescription
from kintune.core.messages import Work
from kintune.core.version import FEATURES
from kintune.errors import KintuneError, StorageError
from kintune.hardware.locks import DeviceLock, OnWait
from kintune.hardware.software import require_tried_versions
from kintune.records import Store
from kintune.scheduler.events import Decision, Event
from kintune.scheduler.policies import policy
from kintune.scheduler.scheduler import RetryLimits, Scheduler
from kintune.service import logs
from kintune.service.blob_store import BlobStore
from kintune.service.database import open_database
from kintune.service.job_repository import JobRepository
from kintune.service.machines import DeviceTypes
from kintune.service.model_store import ModelStore
from kintune.service.orchestrator.engine_log import EngineLog
from kintune.service.orchestrator.events import EventBus, Starting
from kintune.service.orchestrator.job_controller import JobController
from kintune.service.orchestrator.journal import OrchestratorJournal
from kintune.service.orchestrator.refresher import Refresher
from kintune.service.orchestrator.remote_machines import open_remote_machines
from kintune.service.orchestrator.run_factory import JobHosts, RunFactory
from kintune.service.orchestrator.stage_tracker import StageTracker
from kintune.service.settings import ServiceSettings
from kintune.service.supervisor import end_with_parent
from kintune.service.webhooks import Webhooks
from kintune.tuning.front.journal import TuningJournal
from kintune.tuning.front.placement import CorePlacement, choose_placement, holding, off_devices
from kintune.workers.engine.job_run import JobEnd
from kintune.workers.engine.local import LocalEngine
from kintune.workers.fleet.backlog import Backlog

__all__ = ["main", "orchestrate", "publishing_aside"]
_log = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the orchestrator until SIGTERM; returns the exit code: 0, EX_TEMPFAIL for storage trouble, or 1."""
    path, *parent_pipe = sys.argv[1:] if argv is None else argv
    end_with_parent(parent_pipe)
    settings = msgspec.json.decode(Path(path).read_bytes(), type=ServiceSettings)
    logs.configure("orchestrator")
    try:
        orchestrate(settings)
    except StorageError as error:  # a full disk, a server that is away: it passes
        _log.error("%s", error)
        return os.EX_TEMPFAIL
    except KintuneError as error:
        _log.error("%s", error)
        return 1
    return 0


def orchestrate(settings: ServiceSettings) -> None:
    """Serves the jobs of the database until SIGTERM or SIGINT.

    Raises:
        TargetError: the device cannot be used.
        StorageError: a database or a directory cannot be used.
        EngineError: the device's worker or the agents' address cannot be opened.
    """
    require_tried_versions()
    _allow_many_files()
    place = choose_placement(settings.device, None)
    job_hosts = JobHosts(settings, place)
    settings.work.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        stack.enter_context(off_devices(place))
        stack.enter_context(DeviceLock("orchestrator", settings.directory).holding(_waits_for("this directory")))
        ready = threading.Event()

        def look_around() -> None:
            if ready.is_set():
                engine.post(controller.look_around)

        bus = EventBus(settings.socket, look_around)
        stack.callback(bus.close)
        bus.publish(Starting("the orchestrator is starting"))

        def wait_for_cores(holder: str) -> None:
            _waits_for("these cores")(holder)
            number = holder.partition(" ")[0]  # not its command line: whoever asks need not have a token
            bus.publish(Starting(f"the orchestrator waits for its cores, which process {number} holds"))

        stack.enter_context(holding(place.cores, [gpu.index for gpu in place.gpus], wait_for_cores))
        bus.publish(Starting("the orchestrator is starting"))
        database = stack.enter_context(closing(open_database(settings.service_database)))
        store = stack.enter_context(Store.open(settings.records))
        about = _ask_device(settings, place, store)
        refresher = Refresher(
            settings.records,
            settings.refresh_every,
            job_hosts.command("kintune.transfer.refresh_job"),
            job_hosts.home,
            lambda launch: engine.add(launch),
            lambda cause: _log.warning("family models could not be refreshed: %s", cause),
        )
        aside = publishing_aside(place, stack)
        tuning_journal = TuningJournal(store, FEATURES)
        journal = OrchestratorJournal(tuning_journal, store, refresher, tuning_journal.conditions)
        log = EngineLog(settings.directory / "engine.log")
        stage_tracker = StageTracker(
            lambda run: controller.job_of(run),
            time.time,
            bus.publish,
            journal.tally,
            look_around,
            lambda run: engine.post(lambda: controller.stage_waits(run)),
        )
        backlog = Backlog()

        def observe(event: Event, decisions: Sequence[Decision]) -> None:
            stage_tracker(event, decisions)
            backlog(event, decisions)

        engine = stack.enter_context(
            LocalEngine(
                Scheduler(policy(settings.policy), RetryLimits(resources_may_join=settings.grows)),
                journal,
                place.commands(settings.target, urgent=True),
                job_hosts.resources(),
                log=log,
                elsewhere={"build", "device"} if settings.grows else (),
                observe=observe,
            )
        )
        jobs, blobs = JobRepository(database), BlobStore(settings.content)
        factory = RunFactory(
            settings, ModelStore(database), blobs, store, place, job_hosts, about, DeviceTypes(database)
        )
        factory.clean_up_all_but(jobs.under_way())
        controller = JobController(
            jobs,
            Webhooks(database),
            blobs,
            factory,
            engine,
            tuning_journal,
            at_once=settings.jobs_at_once,
            now=time.time,
            publish=bus.publish,
            log=log,
            aside=aside,
        )

        def began(job: str, work: Work) -> None:
            if not refresher.owns(job):
                controller.stage_began(job, work)

        def ended(job: str, end: JobEnd) -> None:
            if refresher.owns(job):
                refresher.ended(end)
            else:
                controller.ended(job, end)

        stack.enter_context(
            open_remote_machines(settings, database, about.compiler, store, engine, backlog, place, job_hosts.cores)
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: engine.leave())
        ready.set()
        engine.post(controller.look_around)  # whatever was poked about until now
        bus.publish(Starting(""))
        _log.info("ready, with device %s", settings.device)
        engine.serve(on_progress=controller.progressed, on_stage=began, on_end=ended)


def publishing_aside(place: CorePlacement, stack: ExitStack) -> Callable[[Callable[[], None]], object]:
    """Returns what publishes results: a thread on the host's cores, which ends with `stack` when all is published.

    Where the host is the device, results are published at once: nothing else runs while it measures.
    """
    if place.shared:
        return lambda act: act()
    return stack.enter_context(ThreadPoolExecutor(1, "publishing", os.sched_setaffinity, (0, place.host))).submit


def _allow_many_files() -> None:
    """Sets the limit of open files to the maximum: every connection takes one, also one that is refused."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _waits_for(what: str) -> OnWait:
    return lambda holder: _log.warning("waiting for %s, held by process %s", what, holder)


def _ask_device(settings: ServiceSettings, place: CorePlacement, store: Store) -> DeviceDescription:
    """Asks a worker of its own, which then ends, what the device is."""
    machine, tuning_journal = Scheduler(policy(settings.policy)), TuningJournal(store, FEATURES)
    with LocalEngine(machine, tuning_journal, place.commands(settings.target), place.resources()) as engine:
        return msgspec.msgpack.decode(engine.about("device", place.names[0]), type=DeviceDescription)


if __name__ == "__main__":
    os._exit(main())
