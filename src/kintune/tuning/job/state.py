"""The state of a tuning job, built from its committed events.

The state changes by `fold` alone, except for what belongs to the process: the prepared network, built programs, trained
models.  These are made again if the process is lost.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from kintune.core.candidate import UNTUNED, Candidate
from kintune.core.config import JobSpec
from kintune.core.device import Peak
from kintune.core.messages import Committed, ItemStatus
from kintune.core.outcome import Outcome, Status
from kintune.core.plan import Round
from kintune.core.stage_requests import Built
from kintune.core.stage_results import (
    BaselineLatencies,
    DraftResult,
    KnownCandidate,
    Packaged,
    Prepared,
    Profiled,
    Selected,
    StageName,
    Taught,
    Updated,
    ValidationResult,
)
from kintune.core.verdict import Verdict
from kintune.core.workload import by_combination
from kintune.errors import OrderError
from kintune.search.family import Subject
from kintune.search.session import SearchSession
from kintune.search.sketch_program import narrow
from kintune.tuning.job.backend import CompilerBackend
from kintune.tuning.job.built_programs import BuiltPrograms
from kintune.tuning.job.finalists import FINALISTS, Finalists
from kintune.tuning.job.handover import Handover, may_hand_over, returned_note
from kintune.tuning.job.narrowing import Narrowing
from kintune.tuning.job.network_check import NetworkCheck
from kintune.tuning.job.outcomes import MEASURING, NEEDED, VERDICTS, rounding_note
from kintune.tuning.job.preparing_again import prepare_again
from kintune.tuning.job.search_models import SearchModels, readable
from kintune.tuning.job.stage_factory import StageFactory
from kintune.tuning.job.statistics import JobStatistics
from kintune.tuning.job.target import BaselinesAndTarget

__all__ = ["TRIES", "JobState"]

TRIES = 3
"""How often a stage that is needed for a result is tried before the job fails."""


def _decode(payload: bytes, kind: Any) -> Any:
    return msgspec.msgpack.decode(payload, type=kind)


class JobState:
    """The state of one job.

    `setbacks` counts the failures in a row of stages that are needed for a result, `setback` is the last of them.
    `plan` is the round that was selected last.  `programs` are those that were built in this process.  `wants_peak`
    says that the device's peak is to be measured.

    `check` is the current check of the network, or the last one.  `checked` are the programs that were found good, None
    before the first good check.  `draft` was compiled and is still to be run.  `is_wrong` says that the network fails
    however it is lowered: `check.cause` is the cause, `culprit` the user's node at fault (None before the search for
    it, empty if it was not found).  `failure` is why the job cannot go on, empty if it can.  `notes` has a line for
    each thing that the user should know.  `wants_alone` says that the network's outputs are accepted only because of
    rounding, so that its subgraphs are to be compared one by one; `excused` is what the check of the whole network has
    said, until that is done.  `baselines` has other runtimes and the target; `narrowing`, the choice of precisions,
    which begins once the finalists were timed again.
    """

    def __init__(self, spec: JobSpec, backend: CompilerBackend, stages: StageFactory) -> None:
        self.spec = spec
        self.statistics = JobStatistics()
        self.prepared: Prepared | None = None
        self.packaged: Packaged | None = None
        self.proof: ValidationResult | None = None
        self.plan: Round | None = None
        self.programs = BuiltPrograms()
        self.setbacks = 0
        self.setback = ""
        self.wants_peak = False
        self.check: NetworkCheck | None = None
        self.checked: dict[str, Candidate] | None = None
        self.checked_proof: ValidationResult | None = None
        self.draft: Packaged | None = None
        self.is_wrong = False
        self.wrong_on = ""
        self.failure = ""
        self.culprit: str | None = None
        self.notes: list[str] = []
        self.wants_alone = False
        self.excused: ValidationResult | None = None
        self.narrowing = Narrowing.of(spec.options)
        self.baselines = BaselinesAndTarget(spec.options.until)
        self._backend = backend
        self._stages = stages
        self._session: SearchSession | None = None
        self._finalists: Finalists | None = None
        self._is_prepared_here = False
        self._handover = Handover()
        self._of_kin: set[Candidate] = set()
        self._models = SearchModels()
        self._is_repaired = False
        self._drafted_s: dict[str, float] = {}  # build times by digest, of candidates that were not selected yet

    @property
    def session(self) -> SearchSession:
        """The search.

        Raises:
            OrderError: the model is not prepared yet.
        """
        if self._session is None:
            raise OrderError("the model must be prepared first")
        return self._session

    @property
    def finalists(self) -> Finalists:
        """The finalists.

        Raises:
            OrderError: the model is not prepared yet.
        """
        if self._finalists is None:
            raise OrderError("the model must be prepared first")
        return self._finalists

    def prepare(self, spec: JobSpec) -> Prepared:
        """Prepare the network in this process; the state changes once the result is committed."""
        prepared = self._backend.prepare(spec)
        self._is_prepared_here = True
        return prepared

    @property
    def is_checking(self) -> bool:
        """Whether a check is running, or is to begin."""
        return self.checked is None or (self.check is not None and self.check.ok is None)

    @property
    def wants_conservative(self) -> bool:
        """Whether the network is to be lowered conservatively, since it failed otherwise."""
        failed = self.check is not None and self.check.ok is False
        return failed and not self.is_wrong and self.prepared is not None and not self.prepared.conservative

    @property
    def wants_handover(self) -> tuple[str, ...]:
        """The nodes to run in onnxruntime from now on, since the network fails or is slow with them; empty if none."""
        if self.prepared is None:
            return ()
        culprit = self.culprit if self.is_wrong else None
        return self._handover.next(self.prepared, culprit, self.check.cause if self.check is not None else "")

    def shipping(self) -> dict[str, Candidate]:
        """Return the programs to ship: the fastest ones, or those of the check where these fail or none was timed."""
        is_kept = self._is_repaired or (self.spec.options.search and not self.anything_measured())
        return self.checked if is_kept and self.checked is not None else self.finalists.chosen()

    def begin_check(self) -> NetworkCheck:
        """Return the current check; begins the first one, of the best known programs, if there is none."""
        if self.check is None:
            self.check = NetworkCheck(self.finalists.draft(), self.finalists.untuned())
        return self.check

    def retrain(self) -> None:
        """Train the models that were lost with an earlier process; the same samples give the same models."""
        self._models.retrain(self.session)

    def latency_us(self) -> tuple[float, ...]:
        """Return the estimated latency of the network with each combination of shapes."""
        return self._each_us({workload: state.best_us for workload, state in self.session.states.items()})

    def untuned_us(self) -> tuple[float, ...]:
        """Return the same of the untuned network; infinite until all untuned programs were timed."""
        return self._each_us({workload: state.untuned_us for workload, state in self.session.states.items()})

    def _each_us(self, times_us: Mapping[str, float]) -> tuple[float, ...]:
        networks = by_combination(self.prepared.subgraphs if self.prepared is not None else ())
        return tuple(sum(s.weight * times_us[s.workload] for s in of if s.workload in times_us) for of in networks)

    def is_target_met(self) -> bool:
        """Return whether the network is estimated to be as fast as was asked for."""
        return self.baselines.is_met(self.latency_us(), self.untuned_us())

    def anything_measured(self) -> bool:
        """Return whether any program besides the untuned ones has run, or the network has nothing to tune."""
        states = self.session.states.values()
        times = ((candidate, time) for state in states for candidate, time in state.times_us.items())
        return not states or any(candidate.sketch != UNTUNED and math.isfinite(time) for candidate, time in times)

    def fold(self, event: Committed) -> None:
        """Take in the next event."""
        self.statistics.at = max(self.statistics.at, event.at)
        ok = event.status is ItemStatus.OK
        if event.kind in NEEDED:
            if event.status is ItemStatus.FAILED and event.cause.startswith(VERDICTS):
                self._fold_failure(event.kind, event.cause.partition(": ")[2])
                return
            self.setbacks = 0 if ok else self.setbacks + 1
            self.setback = "" if ok else f"{event.kind}: {event.cause}"
        if event.kind == StageName.PREPARE and ok:
            self._fold_prepare(_decode(event.payload, Prepared))
        elif event.kind == StageName.KNOWN:
            self._fold_known(_decode(event.payload, tuple[KnownCandidate, ...]))
        elif event.kind == StageName.KIN:
            self._fold_kin(_decode(event.payload, Taught))
        elif event.kind == StageName.BASELINE:
            self._fold_baselines(_decode(event.payload, BaselineLatencies) if ok else None, event.cause)
        elif event.kind == StageName.PEAK:
            self._fold_peak(_decode(event.payload, Peak) if ok else None)
        elif event.kind == StageName.DRAFT and ok:
            self._fold_draft(_decode(event.payload, DraftResult))
        elif event.kind == StageName.PRECISION:
            self.narrowing.compiled(self.finalists, _decode(event.payload, DraftResult).packaged if ok else None)
        elif event.kind == StageName.ERROR:
            self.narrowing.observe(_decode(event.payload, ValidationResult) if ok else None)
            if not ok and self.narrowing.tried == 1 and not self.narrowing.chosen:
                self.notes.append(f"the network with narrower parts does not run: {event.cause}")
            self.notes += self.narrowing.hurry(self.statistics.at)
        elif event.kind == StageName.EXPLAIN:
            self.culprit = _decode(event.payload, str) if ok else ""
        elif event.kind == StageName.CHECK and ok:
            self._fold_check(_decode(event.payload, ValidationResult))
        elif event.kind == StageName.SELECT and ok:
            self._fold_select(_decode(event.payload, Selected))
        elif event.kind == StageName.BUILD:
            self._fold_build(_decode(event.payload, Built), event.seconds)
        elif event.kind in MEASURING:
            self._fold_outcome(event.kind, _decode(event.payload, Profiled))
        elif event.kind == StageName.UPDATE and ok:
            self._models.adopt(_decode(event.payload, Updated), self.session)
        elif event.kind == StageName.PACKAGE and ok:
            self.packaged = _decode(event.payload, Packaged)
            self.narrowing.settle()
        elif event.kind == StageName.PROVE and ok:
            self._fold_proof(_decode(event.payload, ValidationResult))

    def _fold_prepare(self, prepared: Prepared) -> None:
        cause = self.check.cause if self.check is not None else ""
        self.notes += self._handover.end(prepared.handed_over, self.spec.handed_over, cause)
        self.spec = msgspec.structs.replace(
            self.spec, conservative=prepared.conservative, handed_over=prepared.handed_over
        )
        self.is_wrong, self.culprit, self.check, self.draft, self.statistics.curve = False, None, None, None, []
        if not self._is_prepared_here and (change := prepare_again(self._backend, self.spec, prepared)):
            self.failure = change
            return
        outdated = self.prepared.notes if self.prepared is not None else ()
        self.notes = [note for note in self.notes if note not in (*outdated, *prepared.notes)] + [*prepared.notes]
        self.prepared, self.baselines.partial = prepared, prepared.hybrid
        self.spec = self.spec.of_network(prepared.subgraphs)
        self._stages.prepared(prepared)
        subjects = [
            Subject(s.workload, s.weight, s.flops, s.operator, s.signature) for s in prepared.subgraphs if s.tunable
        ]
        if self.spec.options.search and self.baselines.latencies is None:
            self.baselines.wanted = self._backend.baseline_item()
            if self.baselines.wanted is None:
                self._fold_baselines(BaselineLatencies(()), "")
        options = self.spec.options
        self._session = SearchSession(
            subjects, self._backend.space(), options.strategy, seed=options.seed, threads=self.spec.cores
        )
        self._finalists = Finalists(
            prepared.subgraphs, self._session, self._backend.space(), self._backend.packing, narrow(prepared.sketches),
            by_rule=not options.search,
        )  # fmt: skip

    def _fold_known(self, known: Sequence[KnownCandidate]) -> None:
        self.statistics.reused = sum(not fact.suggestion for fact in known)
        for fact in known:
            if fact.suggestion:
                self.session.suggest(fact.candidate)
            else:
                self.session.know(fact.candidate, fact.confirmed or fact.outcome, _features(fact.features))
                if fact.confirmed is not None:
                    self.finalists.know(fact.candidate, fact.confirmed)
        self._models.lose(state.family for state in self.session.states.values())
        self._point()

    def _fold_kin(self, taught: Taught) -> None:
        knowledge = readable(taught.knowledge)
        usable = len(knowledge.models)
        lost = taught.lost + len(taught.knowledge.models) - usable
        self.session.teach(knowledge)
        self.statistics.taught(len(knowledge.programs), usable, lost)
        self.wants_peak = self.spec.options.is_long or self.spec.options.strategy.budget == "prospect"
        if taught.peak is not None:
            self._fold_peak(taught.peak)

    def _fold_baselines(self, found: BaselineLatencies | None, cause: str) -> None:
        """Take in what other runtimes take; with None they could not be timed, and the search goes on without them."""
        self.notes += self.baselines.observe(found, cause)
        self.spec = msgspec.structs.replace(self.spec, options=self.baselines.limited(self.spec.options))
        self.statistics.search_from = self.statistics.at

    def _fold_peak(self, peak: Peak | None) -> None:
        """Take in the device's peak; with None it could not be measured, and the search goes on without it."""
        self.wants_peak = False
        self.statistics.peak = peak
        if peak is not None and self.prepared is not None:
            self.session.limit({each.workload: each.bound_us(peak) for each in self.prepared.subgraphs})

    def _fold_draft(self, drafted: DraftResult) -> None:
        self.draft = drafted.packaged
        if drafted.packaged is None:
            self._attempted(drafted.failure or "it cannot be compiled", drafted.at_fault)

    def _fold_check(self, proof: ValidationResult) -> None:
        self.wrong_on = self.wrong_on or proof.wrong_on
        if self.excused is not None:
            proof, self.excused = self.excused.with_alone(proof), None
        if self.checked is None and proof.verdict is not Verdict.WRONG and (doubt := self._why_wrong(proof)):
            self.begin_check().give_up(doubt)  # rounding moves it as far, whatever programs and lowering it has
            self.draft, self.is_wrong, self.culprit = None, True, ""
        elif cause := self._why_wrong(proof):
            self._attempted(cause, proof.wrong_alone)
        elif (proof.basis or proof.doubtful) and not self.wants_alone:
            self.wants_alone, self.excused = True, proof
            self.draft = None  # compiled again, for the comparison of subgraphs
        elif not self._handover.takes_slow(self.prepared, proof.slow):
            self.checked_proof = proof
            self._attempted("")
            told = proof.basis or proof.doubtful
            if told and not self.is_checking and not self.spec.options.is_proven:  # else `_fold_proof` adds it
                self.notes.append(rounding_note(proof))

    def _fold_proof(self, proof: ValidationResult) -> None:
        self.wrong_on = self.wrong_on or proof.wrong_on
        cause = self._why_wrong(proof)
        if cause and self.narrowing.chosen:
            self.packaged = None
            self.narrowing.refuse()
        elif cause:
            if not self._repair(cause, proof.wrong_alone):
                self.proof = proof
        elif (proof.basis or proof.doubtful) and not self.wants_alone:
            self.wants_alone = True
            self.packaged = None
        else:
            self.proof = proof
            if proof.basis or proof.doubtful:
                self.notes.append(rounding_note(proof))
            if note := returned_note(proof):
                self.notes.append(note)

    def _why_wrong(self, proof: ValidationResult) -> str:
        """Return why a network is not taken, in a line; empty if it is.

        One of which nothing can be said is not taken where onnxruntime can run it instead.
        """
        if proof.verdict is Verdict.WRONG:
            return proof.disagreement or "its outputs differ"
        return proof.doubtful if self.prepared is not None and may_hand_over(self.prepared) else ""

    def _fold_failure(self, kind: str, cause: str) -> None:
        """Take in that the network cannot be compiled or does not run; another try would fail in the same way."""
        if kind == StageName.CHECK:
            self._attempted(cause)
        elif self.prepared is None or not self._repair(cause):
            self.failure = f"{kind}: {cause}"

    def _attempted(self, cause: str, wrong: Collection[str] = ()) -> None:
        """Take in what was wrong with the programs of the check, in a line; empty if they are good.

        `wrong` are the workloads whose programs are known to be at fault.
        """
        check, self.excused = self.begin_check(), None
        attempt = check.attempt
        if attempt is None:
            return
        check.blame(wrong, cause) if wrong else check.observe(cause)
        if check.ok is None or cause:
            self.draft = None
        if check.ok is False:
            self.is_wrong = self.prepared is not None and self.prepared.conservative
        elif check.ok:
            self._settle(check, attempt)

    def _settle(self, check: NetworkCheck, tried: Mapping[str, Candidate]) -> None:
        """Take in that the check has found a good program for each workload."""
        if self.prepared is None:
            return
        names = {s.workload: s.title for s in self.prepared.subgraphs}
        kept = "its untuned program" if self.checked is None else "the program it had before the search"
        for workload in sorted(check.culprits, key=names.__getitem__):
            self.notes.append(f"{names[workload]} keeps {kept}: with another one, {check.cause}")
        if self.checked is None:
            self.finalists.leave_untuned(check.culprits)
            self.session.leave_out(check.culprits)
            if tried != check.settled:  # these may ship, so they are checked as well
                self.draft = None
                self.check = NetworkCheck(check.settled, check.settled)
                return
            self.statistics.search_from = self.statistics.at
        self.checked = check.settled

    def _repair(self, cause: str, wrong: Collection[str] = ()) -> bool:
        """Start a search for the programs because of which the tuned network fails; returns whether it is possible.

        It is done once, and only if other programs are known to be good.
        """
        chosen, checked = self.finalists.chosen(), self.checked
        if checked is None or self._is_repaired or chosen == checked:
            return False
        self._is_repaired = True
        self.packaged = self.draft = None
        self.check = NetworkCheck(chosen, checked, is_good=True)
        self.check.blame(wrong, cause) if wrong else self.check.observe(cause)
        if self.check.ok:
            self._settle(self.check, checked)
        return True

    def _fold_select(self, selected: Selected) -> None:
        self.plan = Round(selected.round, tuple(selected.entries))
        picks = {pick.candidate: _features(pick.features) for pick in selected.picks}
        self._of_kin.update(pick.candidate for pick in selected.picks if pick.origin == "kin")
        self.session.begin(self.plan, picks, {pick.candidate: pick.predicted for pick in selected.picks})
        for candidate in picks:
            if (seconds := self._drafted_s.pop(candidate.digest, None)) is not None:
                self.session.built(candidate, seconds)

    def _fold_build(self, built: Built, seconds: float) -> None:
        awaited = self._awaited(built.candidate)
        if awaited is not None and (built.failure is None or built.failure.status is Status.BUILD_TIMED_OUT):
            if awaited not in self.session.states[awaited.workload].build_s:
                self.session.built(awaited, seconds)
        elif built.failure is None:
            self._drafted_s[built.candidate] = seconds
        candidate = self._stages.candidate(built.candidate)
        if candidate is not None:  # else it was built for an earlier process
            self.programs.observe(candidate, built)
        if built.failure is not None and not self._searched(built.candidate, built.failure):
            self._confirmed(built.candidate, built.failure)

    def _fold_outcome(self, kind: str, profiled: Profiled) -> None:
        observe = self._searched if kind == StageName.PROFILE else self._confirmed
        observe(profiled.candidate, profiled.outcome)

    def _searched(self, digest: str, outcome: Outcome) -> bool:
        """Take in an outcome of the search; returns False if the search awaits none for this candidate."""
        candidate = self._awaited(digest)
        if candidate is None:
            return False
        known = self.session.knows(candidate)
        self.statistics.count(candidate, outcome, trial=not known, of_kin=candidate in self._of_kin)
        self.session.observe(candidate, outcome)
        if all(other.workload != candidate.workload for other in self.session.pending):
            fastest = self.session.states[candidate.workload].fastest(FINALISTS)
            self.programs.keep_only(set(fastest), candidate.workload)
        self._of_kin.discard(candidate)
        self._point()
        return True

    def _awaited(self, digest: str) -> Candidate | None:
        """Return the candidate of this digest, if the search awaits its outcome."""
        known = self._stages.candidate(digest)
        if known is not None:
            return known if self.session.awaits(known) else None
        return next((c for c in self.session.pending if c.digest == digest), None)  # an earlier process offered it

    def _confirmed(self, digest: str, outcome: Outcome) -> bool:
        """Take in an outcome of a finalist; returns False if none is awaited for this candidate."""
        candidate = self._stages.candidate(digest)
        if candidate is None:  # an earlier process offered it
            candidate = next((c for c in self.finalists.pending if c.digest == digest), None)
        if candidate is None or not self.finalists.awaits(candidate):
            return False
        self.statistics.count(candidate, outcome, trial=False)
        self.finalists.observe(candidate, outcome)
        return True

    def _point(self) -> None:
        if self.session.states:
            self.statistics.point(self.session.latency_us())


def _features(blob: bytes) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.frombuffer(blob, dtype="<f4").astype(np.float32)
