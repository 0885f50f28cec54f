"""A tuning job as its process runs it: a fold over committed events, and the works that follow from them.

PREPARE, then rounds of SELECT, BUILD, PROFILE and UPDATE until a limit is reached or nothing is left to gain, then
CONFIRM the best few of every subgraph, PACKAGE the best, and PROVE the result.  Decisions depend on committed events
alone; what is lost with the process (built programs, trained models) is made again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import numpy as np

from kintune.errors import OrderError
from kintune.job.closing import Finalists
from kintune.job.ledger import Ledger
from kintune.job.limits import Limits
from kintune.job.outcomes import MEASURING
from kintune.job.payloads import (
    JobSpec,
    Known,
    Packaged,
    Pick,
    Prepared,
    Profiled,
    Proof,
    Selected,
    StageName,
    Updated,
)
from kintune.job.tools import Tools
from kintune.job.works import Works
from kintune.measure.outcome import Outcome
from kintune.measure.requests import Built
from kintune.search.cost_model import CostModel, Trees
from kintune.search.family import Subject
from kintune.search.model_version import ModelVersion
from kintune.search.plan import Round
from kintune.search.session import Session
from kintune.space.candidate import UNTUNED, Candidate, digest_of
from kintune.wire.job import Saying
from kintune.wire.messages import Committed, Finished, ItemStatus, Offer, Progress, StageClosed, Work

__all__ = ["TuningJob"]

_NEEDED = frozenset({StageName.PREPARE, StageName.SELECT, StageName.UPDATE, StageName.PACKAGE, StageName.PROVE})
_TRIES = 3  # of a stage without which there is no result, before the job is given up

_encode = msgspec.msgpack.encode


def _decode(payload: bytes, kind: Any) -> Any:
    return msgspec.msgpack.decode(payload, type=kind)


class TuningJob:
    """Implements `kintune.wire.job.JobHandler` for the tuning of one model."""

    def __init__(self, tools: Tools, feature_version: str) -> None:
        self._tools = tools
        self._feature_version = feature_version
        self._spec: JobSpec | None = None
        self._prepared: Prepared | None = None
        self._session: Session | None = None
        self._finalists: Finalists | None = None
        self._packaged: Packaged | None = None
        self._proof: Proof | None = None
        self._built: dict[Candidate, Built] = {}
        self._references: dict[str, Built] = {}
        self._plan: Round | None = None
        self._stale_models: set[str] = set()
        self._update_due = False
        self._reason = ""
        self._asked_to_stop = ""
        self._setbacks = 0
        self._setback = ""
        self._kind = ""
        self._offered: set[str] = set()
        self.ledger = Ledger()

    # -- what the engine tells --------------------------------------------------------------------------------

    def open(self, job: str, spec: bytes, history: Sequence[Committed]) -> Iterable[Saying]:
        """Fold what was committed before, then say what is next."""
        del job
        self._spec = _decode(spec, JobSpec)
        self._works = Works(self._spec)
        for event in history:
            self._works.used(event.stage)
            self._fold(event)
        if self._packaged is not None and not self._tools.kept(self._packaged):
            self._packaged, self._proof = None, None
        return self._next()

    def accept(self, event: Committed) -> Iterable[Saying]:
        """One more event: fold it and show where things stand."""
        self._fold(event)
        return [self._progress(event.kind)]

    def closed(self, closed: StageClosed) -> Iterable[Saying]:
        """A stage is over: say what is next, unless it was offered by a process that is gone and ours is still open."""
        self._offered.discard(closed.stage)
        return [] if self._offered else self._next()

    def stop(self, reason: str) -> Iterable[Saying]:
        """Finish with what there is, once the stage now running is closed."""
        self._asked_to_stop = reason
        return []

    # -- stages of its own ------------------------------------------------------------------------------------

    def begin(self, kind: str, context: bytes) -> None:
        """Enter a stage of this process."""
        del context
        self._kind = kind

    def item(self, payload: bytes) -> bytes:
        """Do the one item of a stage of this process."""
        stages: dict[str, Callable[[bytes], bytes]] = {
            StageName.PREPARE: self._run_prepare,
            StageName.SELECT: self._run_select,
            StageName.UPDATE: self._run_update,
            StageName.PACKAGE: self._run_package,
        }
        try:
            run = stages[self._kind]
        except KeyError:
            raise OrderError(f"a tuning job does not run {self._kind} stages itself") from None
        return run(payload)

    def _run_prepare(self, payload: bytes) -> bytes:
        return _encode(self._tools.prepare(_decode(payload, JobSpec)))

    def _run_select(self, payload: bytes) -> bytes:
        session = self._searching()
        plan = _decode(payload, Round)
        self._retrain()
        proposals, invalid = session.select(plan)
        picks = tuple(
            Pick(p.draft.candidate, p.origin, p.predicted, p.draft.features.astype("<f4").tobytes()) for p in proposals
        )
        return _encode(Selected(plan.number, picks, entries=tuple(plan.entries), invalid=invalid))

    def _run_update(self, payload: bytes) -> bytes:
        del payload
        session = self._searching()
        spec = self._the_spec()
        versions: list[ModelVersion] = []
        blobs: dict[str, bytes] = {}
        for family, model in session.train(session.touched()).items():
            blob = model.to_bytes()
            digest = digest_of(blob)
            rows = len(session.samples(family)[1])
            versions.append(ModelVersion(digest, family, spec.device_type.digest, self._feature_version, rows))
            blobs[digest] = blob
        return _encode(Updated(tuple(versions), blobs))

    def _run_package(self, payload: bytes) -> bytes:
        return _encode(self._tools.package(_decode(payload, dict[str, Candidate])))

    # -- the fold ---------------------------------------------------------------------------------------------

    def _fold(self, event: Committed) -> None:
        self.ledger.at = max(self.ledger.at, event.at)
        ok = event.status is ItemStatus.OK
        if event.kind in _NEEDED:
            self._setbacks = 0 if ok else self._setbacks + 1
            self._setback = "" if ok else f"{event.kind}: {event.cause}"
        if event.kind == StageName.PREPARE and ok:
            self._fold_prepare(_decode(event.payload, Prepared))
        elif event.kind == StageName.KNOWN:
            self._fold_known(_decode(event.payload, tuple[Known, ...]))
        elif event.kind == StageName.SELECT and ok:
            self._fold_select(_decode(event.payload, Selected))
        elif event.kind == StageName.BUILD:
            self._fold_build(_decode(event.payload, Built))
        elif event.kind in MEASURING:
            self._fold_outcome(event.kind, _decode(event.payload, Profiled))
        elif event.kind == StageName.UPDATE and ok:
            self._fold_update(_decode(event.payload, Updated))
        elif event.kind == StageName.PACKAGE and ok:
            self._packaged = _decode(event.payload, Packaged)
        elif event.kind == StageName.PROVE and ok:
            self._proof = _decode(event.payload, Proof)

    def _fold_prepare(self, prepared: Prepared) -> None:
        spec = self._the_spec()
        if self._kind != StageName.PREPARE:  # not this process has prepared it
            self._tools.prepare(spec)
        self._prepared = prepared
        self._works.prepared(prepared)
        subjects = [
            Subject(s.workload, s.weight, s.flops, s.operator, s.signature) for s in prepared.subgraphs if s.tunable
        ]
        self._session = Session(
            subjects,
            self._tools.space(),
            spec.options.strategy,
            seed=spec.options.seed,
            threads=spec.cores,
        )
        self._finalists = Finalists(prepared.subgraphs, self._session, self._tools.space())

    def _fold_known(self, known: Sequence[Known]) -> None:
        session = self._searching()
        for fact in known:
            if fact.suggestion:
                session.suggest(fact.candidate)
            else:
                session.know(fact.candidate, fact.confirmed or fact.outcome, _features(fact.features))
                if fact.confirmed is not None:
                    self._closing().know(fact.candidate, fact.confirmed)
                self.ledger.reused += 1
        self._stale_models.update(state.family for state in session.states.values())
        self._point()

    def _fold_select(self, selected: Selected) -> None:
        self._plan = Round(selected.round, tuple(selected.entries))
        picks = {pick.candidate: _features(pick.features) for pick in selected.picks}
        self._built = {}
        self._searching().begin(self._plan, picks)
        self._update_due = bool(picks)

    def _fold_build(self, built: Built) -> None:
        if built.failure is not None:
            if not self._searched(built.candidate, built.failure):
                self._confirmed(built.candidate, built.failure)
            return
        candidate = self._works.candidate(built.candidate)
        if candidate is not None:  # else it was built for a process that is gone
            self._built[candidate] = built
            if candidate.sketch == UNTUNED:
                self._references[candidate.workload] = built

    def _fold_outcome(self, kind: str, profiled: Profiled) -> None:
        observe = self._searched if kind == StageName.PROFILE else self._confirmed
        observe(profiled.candidate, profiled.outcome)

    def _searched(self, digest: str, outcome: Outcome) -> bool:
        """Take in an outcome of the search; False if none is awaited for this candidate."""
        session = self._searching()
        candidate = next((c for c in session.pending if c.digest == digest), None)
        if candidate is None:
            return False
        self.ledger.count(candidate, outcome, trial=True)
        session.observe(candidate, outcome)
        self._point()
        return True

    def _confirmed(self, digest: str, outcome: Outcome) -> bool:
        """The same for a finalist."""
        candidate = next((c for c in self._closing().pending if c.digest == digest), None)
        if candidate is None:
            return False
        self.ledger.count(candidate, outcome, trial=False)
        self._closing().observe(candidate, outcome)
        return True

    def _fold_update(self, updated: Updated) -> None:
        self._update_due = False
        models: dict[str, CostModel] = {}
        for version in updated.versions:
            blob = updated.blobs.get(version.blob)
            if blob is None:
                self._stale_models.add(version.family)
            else:
                models[version.family] = Trees.from_bytes(blob)
                self._stale_models.discard(version.family)
        self._searching().adopt(models)

    def _retrain(self) -> None:
        """Train what a process that is gone had trained; the same samples give the same models."""
        if self._stale_models:
            session = self._searching()
            session.adopt(session.train(sorted(self._stale_models)))
            self._stale_models.clear()

    # -- what is next -----------------------------------------------------------------------------------------

    def _next(self) -> Iterable[Saying]:
        work = self._next_work()
        if work is not None:
            self._offered.add(work.stage.id)
            yield Offer((work,))
            yield self._progress(work.stage.kind)
        else:
            yield self._finish()

    def _next_work(self) -> Work | None:
        works = self._works
        if self._setbacks >= _TRIES:
            return None
        if self._session is None:
            return works.prepare()
        if not self._reason:
            searching = self._search()
            if searching is not None:
                return searching
        if not self._anything_measured():
            return None
        awaited = self._closing().pending
        if awaited:
            return self._measure(awaited, confirm=True)
        if self._packaged is None:
            return works.package(self._closing().chosen())
        if self._proof is None:
            return works.prove(self._packaged)
        return None

    def _search(self) -> Work | None:
        """The next work of the search; None, with the reason noted, when it is over."""
        session = self._searching()
        limits = Limits(self._the_spec().options, self.ledger, session, self._closing().expected)
        if not self._asked_to_stop and session.pending:
            return self._measure(session.pending, confirm=False)
        if self._update_due and not self._asked_to_stop:
            return self._works.update(session.round)
        self._reason = limits.reached(self._asked_to_stop)
        if self._reason:
            return None
        plan = session.plan(limits.affordable())
        if plan is None or (session.round >= 3 and not self._anything_measured()):
            self._reason = "converged"
            return None
        return self._works.select(plan)

    def _measure(self, awaited: Sequence[Candidate], *, confirm: bool) -> Work | None:
        """Build what is not built yet, references included, then time it."""
        missing = [candidate for candidate in awaited if candidate not in self._built]
        if missing:
            workloads = dict.fromkeys(candidate.workload for candidate in awaited)
            references = [Candidate.untuned(w) for w in workloads if w not in self._references]
            return self._works.build(list(dict.fromkeys(missing + references)), confirm=confirm)
        return self._works.profile(awaited, self._built, self._references, confirm=confirm)

    def _anything_measured(self) -> bool:
        """Whether any program but the untuned ones has run; a network without anything to tune needs none."""
        states = self._searching().states.values()
        times = ((candidate, time) for state in states for candidate, time in state.times_us.items())
        return not states or any(candidate.sketch != UNTUNED and math.isfinite(time) for candidate, time in times)

    def _finish(self) -> Finished:
        if self._setbacks >= _TRIES:
            return Finished(True, f"{self._setback} (tried {self._setbacks} times)", b"")
        if self._session is not None and not self._anything_measured():
            why = self.ledger.story() or self._asked_to_stop or "no candidate was valid"
            return Finished(True, f"nothing could be measured: {why}", b"")
        summary = self._closing().summary(self._the_prepared(), self.ledger, self._reason, self._packaged, self._proof)
        return Finished(False, self._reason, _encode(summary))

    # -- showing ----------------------------------------------------------------------------------------------

    def _point(self) -> None:
        session = self._searching()
        if session.states:
            self.ledger.point(session.latency_us())

    def _progress(self, stage: str) -> Progress:
        left = None
        if self._session is not None:
            remaining = len(self._closing().pending) if self._reason else self._closing().expected
            limits = Limits(self._the_spec().options, self.ledger, self._session, remaining)
            left = limits.seconds_left(searching=not self._reason)
        entries = self._plan.entries if self._plan else ()
        name = ""
        if len(entries) == 1 and self._prepared is not None:
            name = next((s.name for s in self._prepared.subgraphs if s.workload == entries[0].workload), "")
        return Progress(_encode(self.ledger.report(stage, name, self._the_spec().options, self._session, left)))

    # -- what must be there by now ----------------------------------------------------------------------------

    def _the_spec(self) -> JobSpec:
        if self._spec is None:
            raise OrderError("a job must be opened first")
        return self._spec

    def _the_prepared(self) -> Prepared:
        if self._prepared is None:
            raise OrderError("the model must be prepared first")
        return self._prepared

    def _searching(self) -> Session:
        if self._session is None:
            raise OrderError("the model must be prepared first")
        return self._session

    def _closing(self) -> Finalists:
        if self._finalists is None:
            raise OrderError("the model must be prepared first")
        return self._finalists


def _features(blob: bytes) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.frombuffer(blob, dtype="<f4").astype(np.float32)
