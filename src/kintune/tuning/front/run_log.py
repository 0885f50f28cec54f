"""The log of one run: turns the results of its stages into measurements and events in the records.

Events are stored in a complete form: a crash is stored as the outcome of a candidate, features are stored with the
measurement.  What can be made again (built programs, trained models) is left out of the events.
"""

from __future__ import annotations

import contextlib
import math
from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import Any

import msgspec

from kintune.core.candidate import UNTUNED, Candidate
from kintune.core.config import JobSpec
from kintune.core.device import Peak
from kintune.core.knowledge import TrainingConditions
from kintune.core.measurement_protocol import OPERANDS
from kintune.core.messages import Committed, ItemStatus, Work
from kintune.core.outcome import Outcome
from kintune.core.stage_requests import BuildItem, Built, ProfileItem
from kintune.core.stage_results import KnownCandidate, Pick, Prepared, Profiled, Selected, StageName, Updated
from kintune.errors import DamagedRecord, RecordsError
from kintune.records import Measurement, Store
from kintune.search.family import Subject
from kintune.transfer.choice import TransferChoice, choose, expand
from kintune.transfer.gather import UninformativeFailures, is_uninformative
from kintune.tuning.job.outcomes import MEASURING, built_of, check_answer, profiled_of
from kintune.workers.engine.journal import JournalEntry

__all__ = ["RunLog"]

_SUGGESTIONS = 3  # for each workload, at most
_REMEMBERED = 4096  # candidates built last; more than one stage may time a candidate if the job's process died

_encode = msgspec.msgpack.encode


def _decode(payload: bytes, kind: Any) -> Any:
    return msgspec.msgpack.decode(payload, type=kind)


class RunLog:
    """Reads and writes the events of one run, and the measurements that they bring."""

    def __init__(
        self,
        store: Store,
        spec: JobSpec,
        compiler: str,
        *,
        use_known: bool,
        feature_version: str,
        hidden: Callable[[], Collection[str]] = frozenset,
    ) -> None:
        self._store = store
        self._spec = spec
        self._compiler = compiler
        self._use_known = use_known
        self._feature_version = feature_version
        self._hidden = hidden
        self._device = self._device_type = spec.device_type.digest  # the second is replaced by `_enlist`
        self._items: dict[str, list[str]] = {}
        self._left: dict[str, int] = {}
        self._workloads: list[str] = []
        self._failed: set[str] = set()
        self._picks: dict[str, Pick] = {}
        self._candidates: OrderedDict[str, Candidate] = OrderedDict()  # of those that were selected
        self._unselected: dict[str, Candidate] = {}  # built for a check or the closing: few, some are timed much later
        self._sequence = store.events.count(spec.run_id)
        self._events: list[Committed] = []  # these three are written at the end of a transaction
        self._measurements: list[Measurement] = []
        self._active: float | None = None

    @property
    def conditions(self) -> TrainingConditions:
        """The conditions under which this run measures."""
        return TrainingConditions(self._device_type, self._compiler, self._feature_version)

    def watch(self, work: Work) -> None:
        """Note the candidates of a stage that begins; built programs are not kept, since they would fill the memory."""
        if work.stage.kind == StageName.BUILD:
            candidates = [_decode(item, BuildItem).candidate for item in work.items]
            for candidate in candidates:
                if candidate.digest not in self._picks:
                    self._unselected[candidate.digest] = candidate
                    continue
                self._candidates[candidate.digest] = candidate
                self._candidates.move_to_end(candidate.digest)  # it was built again
            while len(self._candidates) > _REMEMBERED:
                self._candidates.popitem(last=False)
            self._begin(work, [candidate.digest for candidate in candidates])
        elif work.stage.kind in MEASURING:
            items = [_decode(item, ProfileItem) for item in work.items]
            for item in items:
                self._recall(item.workload, item.built.candidate)
            self._begin(work, [item.built.candidate for item in items])

    def history(self) -> list[Committed]:
        """Return all events committed so far, in the form for the job."""
        told: list[Committed] = []
        for event in self._store.events.history(self._spec.run_id):
            if event.kind == StageName.PREPARE and event.status is ItemStatus.OK:
                self._enlist(_decode(event.payload, Prepared))
            elif event.kind == StageName.SELECT and event.status is ItemStatus.OK:
                self._remember(_decode(event.payload, Selected))
            elif event.kind == StageName.PROFILE:
                self._picks.pop(_decode(event.payload, Profiled).candidate, None)
            elif event.kind == StageName.BUILD and (built := _decode(event.payload, Built)).failure is not None:
                self._picks.pop(built.candidate, None)
            told.append(self._expanded(event))
        return self._with_models(told)

    def commit(self, entry: JournalEntry) -> list[Committed]:
        """Commit an entry and its measurements; returns the events, after PREPARE also those of what is known.

        It is called inside a transaction, at the end of which `write` must be called.

        Raises:
            WireError: the answer of a worker is not valid; nothing is committed.
        """
        if entry.status is ItemStatus.OK:
            check_answer(entry.kind, entry.payload)
        told, kept = self._payloads(entry)
        event = self._append(msgspec.structs.replace(entry, payload=kept))
        self._keep_facts(entry, told)
        events = [msgspec.structs.replace(event, payload=told)]
        if entry.kind == StageName.PREPARE and entry.status is ItemStatus.OK:
            prepared: Prepared = _decode(told, Prepared)
            events.append(self._expanded(self._append_known(entry, prepared)))
            events.append(self._expanded(self._append_kin(entry, prepared)))
        self._active = entry.at
        self._sequence += len(events)
        self._tidy(entry)
        return events

    def write(self) -> None:
        """Write the entries since the last call to the records, all rows at once, since that is faster."""
        if self._active is None:
            return
        self._write_measurements()
        self._store.events.append(self._spec.run_id, *self._events)
        self._store.runs.update(self._spec.run_id, active_seconds=self._active)
        self._events.clear()
        self._active = None

    def forget(self) -> None:
        """Drop what was not written, since the transaction is rolled back."""
        if self._events:
            self._sequence = self._events[0].seq
        self._events.clear()
        self._measurements.clear()
        self._active = None

    def _write_measurements(self) -> None:
        self._store.measurements.add_all(self._measurements)
        self._measurements.clear()

    def _begin(self, work: Work, candidates: list[str]) -> None:
        self._items[work.stage.id] = candidates
        self._left[work.stage.id] = len(candidates)

    def _recall(self, workload: str, digest: str) -> None:
        """Load a candidate that is to be timed from the records, if it is not in memory."""
        if digest not in self._picks and digest not in self._candidates and digest not in self._unselected:
            measured = self._store.measurements.of(self._device_type, self._compiler, workload, digest)
            if measured is not None:
                self._candidates[digest] = measured.candidate

    def _tidy(self, entry: JournalEntry) -> None:
        """Drop the items of a stage once all of them have ended."""
        left = self._left.get(entry.stage)
        if left is not None:
            self._left[entry.stage] = left - 1
            if left == 1:
                del self._left[entry.stage]
                del self._items[entry.stage]

    # -- events -----------------------------------------------------------------------------------------------

    def _payloads(self, entry: JournalEntry) -> tuple[bytes, bytes]:
        """Return the payload for the job, and the one that is stored (without what can be made again)."""
        if entry.kind == StageName.BUILD:
            built = built_of(self._item(entry), entry.status, entry.payload, entry.cause)
            return _encode(built), _encode(Built(built.candidate, failure=built.failure))
        if entry.kind in MEASURING:
            profiled = _encode(profiled_of(self._item(entry), entry.status, entry.payload, entry.cause))
            return profiled, profiled
        if entry.kind == StageName.UPDATE and entry.status is ItemStatus.OK:
            updated: Updated = _decode(entry.payload, Updated)
            return entry.payload, _encode(msgspec.structs.replace(updated, blobs={}))
        return entry.payload, entry.payload

    def _append(self, entry: JournalEntry, *, offset: int = 0) -> Committed:
        values = {name: getattr(entry, name) for name in entry.__struct_fields__}
        event = Committed(seq=self._sequence + offset, **values)
        self._events.append(event)
        return event

    def _append_known(self, entry: JournalEntry, prepared: Prepared) -> Committed:
        found = self._look_up(prepared) if self._use_known else []
        noted = _encode({m.id: m.confirmed for m in found})
        return self._append(
            JournalEntry(entry.at, StageName.KNOWN, 0, StageName.KNOWN, 0, ItemStatus.OK, noted), offset=1
        )

    def _append_kin(self, entry: JournalEntry, prepared: Prepared) -> Committed:
        offer = TransferChoice(peak=self._store.devices.peak(self._device))
        if self._use_known and self._spec.options.kin:
            subjects = [
                Subject(s.workload, s.weight, s.flops, s.operator, s.signature) for s in prepared.subgraphs if s.tunable
            ]
            families = self._spec.options.strategy.families
            chosen = TransferChoice()
            for conditions in (self.conditions, *self._akin()):
                if not chosen.programs and not chosen.models:
                    chosen = choose(self._store, conditions, subjects, families, hidden=self._hidden())
            offer = msgspec.structs.replace(chosen, peak=offer.peak)
        return self._append(
            JournalEntry(entry.at, StageName.KIN, 0, StageName.KIN, 0, ItemStatus.OK, _encode(offer)), offset=2
        )

    def _akin(self) -> list[TrainingConditions]:
        """Return the conditions with other operands on the same device, for use if the own ones have no knowledge."""
        kinds = [self._spec.device_type.with_operands(operands).digest for operands in OPERANDS]
        return [self.conditions._replace(device_type=kind) for kind in kinds if kind != self._device_type]

    def _look_up(self, prepared: Prepared) -> list[Measurement]:
        """Return the measurements of the model's workloads, and the best few under other conditions as suggestions."""
        known = {sketch.digest for sketch in prepared.sketches} | {UNTUNED}
        found = self._store.measurements.find(workloads=self._workloads, on_damage=_leave_out)
        hidden = self._hidden()
        usable = [m for m in found if m.candidate.sketch in known and m.run_id not in hidden]
        elsewhere: dict[str, list[Measurement]] = {}
        for measurement in sorted(usable, key=lambda m: (m.believed_us, m.id)):
            is_tuned = measurement.candidate.sketch != UNTUNED  # the untuned program is measured anyway
            if is_tuned and not self._is_fact(measurement) and math.isfinite(measurement.believed_us):
                elsewhere.setdefault(measurement.candidate.workload, []).append(measurement)
        suggested = [m for of_one in elsewhere.values() for m in of_one[:_SUGGESTIONS]]
        uninformative = UninformativeFailures(self._store)
        return [*(m for m in usable if self._is_fact(m) and not uninformative.includes(m)), *suggested]

    def _is_fact(self, measurement: Measurement) -> bool:
        return (measurement.device_type, measurement.compiler) == (self._device_type, self._compiler)

    def _expanded(self, event: Committed) -> Committed:
        """Return the event in the form for the job.

        A KNOWN event is stored as the ids of measurements, with the outcomes that had confirmed them by then; a KIN
        event is stored as a `TransferChoice`.
        """
        if event.kind == StageName.KIN:
            taught = expand(self._store, _decode(event.payload, TransferChoice))
            return msgspec.structs.replace(event, payload=_encode(taught))
        if event.kind != StageName.KNOWN:
            return event
        noted: dict[int, Outcome | None] = _decode(event.payload, dict[int, Outcome | None])
        found = self._store.measurements.named(noted, on_damage=_leave_out)
        known = tuple(self._known(m, noted[m.id]) for m in found)
        return msgspec.structs.replace(event, payload=_encode(known))

    def _known(self, measurement: Measurement, confirmed: Outcome | None) -> KnownCandidate:
        usable = measurement.feature_version in ("", self._feature_version)
        return KnownCandidate(
            candidate=measurement.candidate,
            outcome=measurement.outcome,
            features=measurement.features if usable else b"",
            confirmed=confirmed,
            suggestion=not self._is_fact(measurement),
        )

    def _with_models(self, events: list[Committed]) -> list[Committed]:
        """Add the latest model of each family to the UPDATE events; the job trains models that are lost."""
        seen: set[str] = set()
        for at in reversed(range(len(events))):
            if events[at].kind != StageName.UPDATE or events[at].status is not ItemStatus.OK:
                continue
            updated: Updated = _decode(events[at].payload, Updated)
            blobs: dict[str, bytes] = {}
            for version in updated.versions:
                if version.family not in seen:
                    seen.add(version.family)
                    with contextlib.suppress(RecordsError):
                        blobs[version.blob] = self._store.blobs.get(version.blob)
            if blobs:
                payload = _encode(msgspec.structs.replace(updated, blobs=blobs))
                events[at] = msgspec.structs.replace(events[at], payload=payload)
        return events

    # -- facts ------------------------------------------------------------------------------------------------

    def _keep_facts(self, entry: JournalEntry, payload: bytes) -> None:
        if entry.kind == StageName.BUILD:
            built = _decode(payload, Built)
            if built.failure is not None:
                self._measured(built.candidate, built.failure)
        elif entry.kind == StageName.PROFILE:
            profiled = _decode(payload, Profiled)
            self._measured(profiled.candidate, profiled.outcome)
        elif entry.kind == StageName.CONFIRM:
            profiled = _decode(payload, Profiled)
            candidate = self._measured(profiled.candidate, profiled.outcome)
            if entry.status is ItemStatus.CRASHED or is_uninformative(profiled.outcome):
                return  # the time that made it a finalist is still the best that is known of it
            self._confirm(candidate, profiled.outcome)
        elif entry.status is not ItemStatus.OK:
            return
        elif entry.kind == StageName.PREPARE:
            self._prepared(_decode(payload, Prepared))
        elif entry.kind == StageName.SELECT:
            self._remember(_decode(payload, Selected))
        elif entry.kind == StageName.PEAK:
            self._store.devices.note_peak(self._device, _decode(payload, Peak))
        elif entry.kind == StageName.UPDATE:
            self._updated(_decode(payload, Updated))

    def _enlist(self, prepared: Prepared) -> None:
        self._spec = self._spec.of_network(prepared.subgraphs)
        self._device_type = self._spec.device_type.digest
        self._workloads = [subgraph.workload for subgraph in prepared.subgraphs]
        found = self._store.measurements.find(
            workloads=self._workloads, device_type=self._device_type, compiler=self._compiler, on_damage=_leave_out
        )
        self._failed = {m.candidate.digest for m in found if not (m.confirmed or m.outcome).ok}

    def _prepared(self, prepared: Prepared) -> None:
        self._enlist(prepared)
        self._store.devices.add(self._spec.device_type)
        for subgraph in prepared.subgraphs:
            named = msgspec.structs.replace(subgraph, name=subgraph.own_name)  # as other models will meet it
            self._store.workloads.add(named, prepared.modules[subgraph.workload])
        for sketch in prepared.sketches:
            self._store.workloads.add_sketch(sketch)
        self._store.runs.update(self._spec.run_id, model_digest=prepared.model_digest)

    def _remember(self, selected: Selected) -> None:
        self._picks.update((pick.candidate.digest, pick) for pick in selected.picks)

    def _measured(self, digest: str, outcome: Outcome) -> Candidate:
        pick = self._picks.pop(digest, None)
        candidate = pick.candidate if pick else self._candidates.get(digest) or self._unselected[digest]
        self._measurements.append(
            Measurement(
                device_type=self._device_type,
                compiler=self._compiler,
                candidate=candidate,
                outcome=outcome,
                features=pick.features if pick else b"",
                feature_version=self._feature_version if pick and pick.features else "",
                origin=pick.origin if pick else "",
                predicted=pick.predicted if pick else None,
                run_id=self._spec.run_id,
            )
        )
        if outcome.ok and digest in self._failed:  # the first measurement is kept, and this one confirms it
            self._confirm(candidate, outcome)
            self._failed.discard(digest)
        return candidate

    def _confirm(self, candidate: Candidate, outcome: Outcome) -> None:
        """Record the result of timing a candidate again; a damaged measurement stays as it is until it is removed."""
        self._write_measurements()
        with contextlib.suppress(DamagedRecord):
            self._store.measurements.confirm(self._device_type, self._compiler, candidate, outcome)

    def _updated(self, updated: Updated) -> None:
        for version in updated.versions:
            self._store.blobs.put(updated.blobs[version.blob])
            self._store.models.add(version)

    def _item(self, entry: JournalEntry) -> str:
        """Return the candidate (digest) of the entry."""
        return self._items[entry.stage][entry.index]


def _leave_out(damage: object) -> None:
    """Ignore a damaged measurement; the candidate is measured again."""
    del damage
