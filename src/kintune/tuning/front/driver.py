"""Several runs at once on one machine: the front process of a command.

It holds the cores that it uses, starts the engine with its processes, commits what they yield, and looks at each proof
before a result gets its name.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from kintune.core.device import DeviceDescription
from kintune.core.report import ProgressReport, RunReport
from kintune.core.version import FEATURES
from kintune.errors import InputError, KintuneError
from kintune.hardware.software import require_tried_versions
from kintune.records import Store
from kintune.scheduler.policies import POLICIES, policy
from kintune.scheduler.recording import Header
from kintune.scheduler.scheduler import RetryLimits, Scheduler
from kintune.tuning.front.journal import TuningJournal
from kintune.tuning.front.placement import Placement, choose_placement, holding
from kintune.tuning.front.publishing import discard
from kintune.tuning.front.request import TuneRequest
from kintune.tuning.front.schedule_log import ScheduleLog
from kintune.tuning.front.tuning_run import TuningRun
from kintune.workers.engine.job_run import JobEnd, JobLaunch
from kintune.workers.engine.local import LocalEngine, Observe

__all__ = ["Ending", "OnProgress", "Scheduling", "tune_all"]

OnProgress = Callable[[int, ProgressReport], None]
"""Told the number of a request, from 0 on, and where its run stands."""

_CROWDED = "measurements share the device under this policy; their times are kept apart, and serve no other run"

Ending = RunReport | KintuneError
"""What came of a request."""


class Scheduling(msgspec.Struct, frozen=True):
    """How runs share the machine.

    `policy` is one of `kintune.scheduler.policies`.  With `pipelined`, a run whose device is not the host prepares its
    next round while one is measured.  What is decided is recorded in the file `log`, if one is named.  `job_module` is
    the module that a job's process runs; benchmarks have their own.
    """

    policy: str = "predictive"
    bundling: bool = False
    pipelined: bool = True
    log: str | None = None
    job_module: str = "kintune.tuning.job.process"


def tune_all(
    requests: Sequence[TuneRequest], scheduling: Scheduling | None = None, on_progress: OnProgress | None = None
) -> list[Ending]:
    """Tune as asked; what came of each request, in their order.  A request that fails does not end the others.

    Ctrl-C ends the searches and keeps what was found.

    Raises InputError (or a child) when something is wrong with what the requests have in common, StorageError when the
    records cannot be written (the runs can be gone on with).
    """
    scheduling = scheduling or Scheduling()
    _check(requests, scheduling)
    require_tried_versions()
    first = requests[0]
    place = choose_placement(first.device, first.threads)
    show = on_progress or _ignore
    with Store.open(first.records) as store:
        if store.notice:
            _tell_all(show, requests, store.notice)

        def waiting(holder: str) -> None:
            _tell_all(show, requests, f"waiting for the cores, held by {holder}")

        with holding(place.cores, [gpu.index for gpu in place.gpus], waiting):
            owner = "crowded" if POLICIES[scheduling.policy].waives else ""
            tickets = [TuningRun(request, store, place.station(), owner) for request in requests]
            _check_distinct(tickets)
            return _Campaign(tickets, store, place, scheduling, show).run()


class _Campaign:
    """One process's work on some runs."""

    def __init__(
        self, tickets: Sequence[TuningRun], store: Store, place: Placement, scheduling: Scheduling, show: OnProgress
    ) -> None:
        self._tickets = {ticket.run_id: ticket for ticket in tickets}
        self._numbers = {ticket.run_id: number for number, ticket in enumerate(tickets)}
        self._store = store
        self._place = place
        self._scheduling = scheduling
        self._show = show

    def run(self) -> list[Ending]:
        tickets, place = list(self._tickets.values()), self._place
        log = tickets[0].log
        log.parent.mkdir(parents=True, exist_ok=True)
        for ticket in tickets:
            ticket.log = log
            self._show(self._numbers[ticket.run_id], ProgressReport(stage="prepare", phase="starting"))
        journal = TuningJournal(self._store, FEATURES)
        with _on_cores(place), self._recording() as recording, self._engine(journal, log, recording.observe) as engine:
            about = msgspec.msgpack.decode(engine.about("device", place.names[0]), type=DeviceDescription)
            if POLICIES[self._scheduling.policy].waives:
                about = about.crowded()
                _tell_all(self._show, [ticket.request for ticket in tickets], _CROWDED)
            launches = [self._launch(ticket, journal, about) for ticket in tickets]
            try:
                ends = engine.run(launches, on_progress=self._progressed, on_stage=journal.watch)
                return [self._conclude(ticket, ends) for ticket in tickets]
            except KeyboardInterrupt:
                for ticket in tickets:
                    ticket.interrupted()
                raise
            finally:
                for ticket in tickets:
                    discard(ticket.request.output)

    def _recording(self) -> ScheduleLog:
        scheduling = self._scheduling
        names = {run_id: ticket.request.model.name for run_id, ticket in self._tickets.items()}
        return ScheduleLog(scheduling.log, Header(scheduling.policy, scheduling.bundling, names))

    def _engine(self, journal: TuningJournal, log: Path, observe: Observe) -> LocalEngine:
        chosen = policy(self._scheduling.policy)
        target = next(iter(self._tickets.values())).request.target
        return LocalEngine(
            Scheduler(chosen, RetryLimits(bundling=self._scheduling.bundling)),
            journal,
            self._place.commands(target),
            self._place.resources(),
            log=log,
            observe=observe,
            crowded=chosen.waives,
        )

    def _launch(self, ticket: TuningRun, journal: TuningJournal, about: DeviceDescription) -> JobLaunch:
        scheduling, host = self._scheduling, self._place.host
        cores = max(1, len(host) // len(self._tickets))  # so that runs can be on the host side by side
        spec = ticket.open(about, cores=cores, pipelined=scheduling.pipelined)
        journal.enter(spec, about.compiler, use_known=not ticket.request.fresh)
        command = self._place.on_host(scheduling.job_module)
        return JobLaunch(ticket.run_id, command, msgspec.msgpack.encode(spec), ticket.request.priority)

    def _conclude(self, ticket: TuningRun, ends: Mapping[str, JobEnd]) -> Ending:
        try:
            return ticket.conclude(ends[ticket.run_id])
        except KintuneError as error:
            return error

    def _progressed(self, job: str, payload: bytes) -> None:
        self._show(self._numbers[job], msgspec.msgpack.decode(payload, type=ProgressReport))


def _check(requests: Sequence[TuneRequest], scheduling: Scheduling) -> None:
    """Everything that can be told before anything begins."""
    if not requests:
        raise InputError("there is no model to tune")
    if scheduling.policy not in POLICIES:
        raise InputError(f"there is no policy {scheduling.policy!r}; there are {', '.join(POLICIES)}")
    if POLICIES[scheduling.policy].waives and len(requests) > 1 and requests[0].device == "cpu":
        raise InputError(
            f"policy {scheduling.policy!r} would measure on cores that others work on; give the device its own: "
            "--device cpu:1"
        )
    outputs: dict[str, str] = {}
    for request in requests:
        if request.output in outputs:
            raise InputError(
                f"{request.model.name} and {outputs[request.output]} would both be written to {request.output}"
            )
        outputs[request.output] = request.model.name


def _check_distinct(tickets: Sequence[TuningRun]) -> None:
    """Two requests cannot go on with the same run."""
    by_run: dict[str, TuningRun] = {}
    for ticket in tickets:
        other = by_run.setdefault(ticket.run_id, ticket)
        if other is not ticket:
            raise InputError(
                f"{other.request.output} and {ticket.request.output} are the same work, which is under way already; "
                "ask for it once"
            )


@contextlib.contextmanager
def _on_cores(place: Placement) -> Iterator[None]:
    """Keep this process away from a device that has cores of its own; children begin where it is."""
    before = os.sched_getaffinity(0)
    if not place.shared:
        os.sched_setaffinity(0, place.host)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _tell_all(show: OnProgress, requests: Sequence[TuneRequest], phase: str) -> None:
    for number in range(len(requests)):
        show(number, ProgressReport(stage="prepare", phase=phase))


def _ignore(number: int, report: ProgressReport) -> None:
    del number, report
