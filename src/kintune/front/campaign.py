"""Several runs at once on one machine: the front process of a command.

It holds the cores that it uses, starts the engine with its processes, commits what they yield, and looks at each proof
before a result gets its name.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from kintune.doctor.software import require_tried_versions
from kintune.engine.devices import cores_lock
from kintune.engine.job_run import JobEnd, JobLaunch
from kintune.engine.local import LocalEngine
from kintune.errors import InputError, KintuneError
from kintune.front.journal import TuningJournal
from kintune.front.place import Place, choose_place
from kintune.front.report import RunReport
from kintune.front.request import TuneRequest
from kintune.front.shipping import discard
from kintune.front.ticket import Ticket
from kintune.job.progress import ProgressReport
from kintune.measure.about import DeviceAbout
from kintune.records import Store
from kintune.scheduler.machine import Limits, Machine
from kintune.scheduler.policies import POLICIES, policy
from kintune.space.feature_version import FEATURES

__all__ = ["Ending", "OnProgress", "Scheduling", "tune_all"]

OnProgress = Callable[[int, ProgressReport], None]
"""Told the number of a request, from 0 on, and where its run stands."""

Ending = RunReport | KintuneError
"""What came of a request."""


class Scheduling(msgspec.Struct, frozen=True):
    """How runs share the machine; `policy` is one of `kintune.scheduler.policies`."""

    policy: str = "sequential"
    bundling: bool = False


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
    place = choose_place(first.device, first.threads)
    show = on_progress or _ignore
    with Store.open(first.records) as store:
        if store.notice:
            _tell_all(show, requests, store.notice)

        def waiting(holder: str) -> None:
            _tell_all(show, requests, f"waiting for the cores, held by {holder}")

        with cores_lock({*place.device, *place.host}, waiting):
            tickets = [Ticket(request, store, place) for request in requests]
            return _Campaign(tickets, store, place, scheduling, show).run()


class _Campaign:
    """One process's work on some runs."""

    def __init__(
        self, tickets: Sequence[Ticket], store: Store, place: Place, scheduling: Scheduling, show: OnProgress
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
        machine = Machine(policy(self._scheduling.policy), Limits(bundling=self._scheduling.bundling))
        commands = place.commands(tickets[0].request.target)
        outputs: list[str] = []
        with _on_cores(place), LocalEngine(machine, journal, commands, place.resources(), log=log) as engine:
            about = msgspec.msgpack.decode(engine.about("device", "cpu"), type=DeviceAbout)
            launches: list[JobLaunch] = []
            for ticket in tickets:
                spec = ticket.open(about)
                journal.enter(spec, about.compiler, use_known=not ticket.request.fresh)
                job = place.on_host("kintune.job.process")
                launches.append(JobLaunch(ticket.run_id, job, msgspec.msgpack.encode(spec)))
                outputs.append(spec.output)
            try:
                ends = engine.run(launches, on_progress=self._progressed, on_stage=journal.watch)
                return [self._conclude(ticket, ends) for ticket in tickets]
            except KeyboardInterrupt:
                for ticket in tickets:
                    ticket.interrupted()
                raise
            finally:
                for output in outputs:
                    discard(output)

    def _conclude(self, ticket: Ticket, ends: Mapping[str, JobEnd]) -> Ending:
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
            raise InputError(f"{request.model.name} and {outputs[request.output]} would both be written to {request.output}")
        outputs[request.output] = request.model.name


@contextlib.contextmanager
def _on_cores(place: Place) -> Iterator[None]:
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
