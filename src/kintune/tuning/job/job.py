"""A tuning job in its process: takes in committed events, offers stages, and runs those that need the compiler.

The stages are PREPARE, a check of the network, BASELINE, then rounds of SELECT, BUILD, PROFILE and UPDATE until a limit
is reached or nothing is left to gain, then CONFIRM for the best few programs of every subgraph, PACKAGE for the best
ones, and PROVE for the result.
Decisions depend on committed events alone (`kintune.tuning.job.state`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from kintune.core.candidate import digest_of
from kintune.core.config import JobSpec
from kintune.core.knowledge import ModelVersion, TrainedModel
from kintune.core.messages import Committed, Finished, OfferStages, Progress, StageClosed
from kintune.core.plan import Round
from kintune.core.report import LatencyForecast, StopReason
from kintune.core.stage_results import DraftPrograms, DraftResult, Packaged, Pick, Selected, StageName, Updated
from kintune.errors import OrderError
from kintune.tuning.end_forecast import foretell_end, least_ms
from kintune.tuning.job.backend import CompilerBackend
from kintune.tuning.job.limits import SearchLimits
from kintune.tuning.job.patience import within
from kintune.tuning.job.planner import Planner, limits_of
from kintune.tuning.job.stage_factory import StageFactory
from kintune.tuning.job.state import TRIES, JobState
from kintune.wire.job_loop import Saying

__all__ = ["TuningJob"]

_UNMEASURED = "The search ended before it had timed a program; the result has the programs that were compiled first."

_encode = msgspec.msgpack.encode


def _decode(payload: bytes, kind: Any) -> Any:
    return msgspec.msgpack.decode(payload, type=kind)


class TuningJob:
    """Implements `kintune.wire.job_loop.JobHandler` for the tuning of one model."""

    def __init__(self, backend: CompilerBackend, feature_version: str) -> None:
        self._backend = backend
        self._feature_version = feature_version
        self._opened: JobState | None = None
        self._asked_to_stop = ""
        self._kind = ""

    # -- messages of the engine -------------------------------------------------------------------------------

    def open(self, job: str, spec: bytes, history: Sequence[Committed]) -> Iterable[Saying]:
        """Take in the events that were committed before; returns the first messages."""
        del job
        asked = _decode(spec, JobSpec)
        self._stages = StageFactory(asked)
        self._opened = state = JobState(asked, self._backend, self._stages)
        self._planner = Planner(state, self._stages)
        for event in history:
            self._stages.used(event.stage)
            if not state.failure:
                state.fold(event)
        self._forget_lost_files()
        return self._next()

    def _forget_lost_files(self) -> None:
        """Forget what was compiled into files that are gone, or are not what was written: it is compiled again."""
        state, kept = self._state, self._backend.kept
        if state.packaged is not None and not kept(state.packaged):
            state.packaged, state.proof = None, None
        if state.draft is not None and not kept(state.draft):
            state.draft = None
        if state.narrowing.draft is not None and not kept(state.narrowing.draft):
            state.narrowing.draft = None

    def accept(self, event: Committed, more: bool) -> Iterable[Saying]:
        """Take in an event; returns the progress after the last one of a batch (`more` is False)."""
        self._state.fold(event)
        return [] if more else [self._progress(event.kind)]

    def closed(self, closed: StageClosed) -> Iterable[Saying]:
        """Note that a stage is over; returns the next stages, or the end of the job."""
        self._planner.closed(closed.stage)
        return self._next()

    def stop(self, reason: str) -> Iterable[Saying]:
        """Finish with the results so far, once the running stages are closed; the report's reason is INTERRUPTED."""
        del reason  # free text; the reasons of reports are fixed
        self._asked_to_stop = StopReason.INTERRUPTED.value
        return []

    # -- stages of its own ------------------------------------------------------------------------------------

    def begin(self, kind: str, context: bytes) -> None:
        """Enter a stage of this process."""
        del context
        self._kind = kind

    def item(self, payload: bytes) -> bytes:
        """Run the only item of a stage of this process."""
        stages: dict[str, Callable[[bytes], bytes]] = {
            StageName.PREPARE: self._run_prepare,
            StageName.DRAFT: self._run_draft,
            StageName.PRECISION: self._run_draft,
            StageName.EXPLAIN: self._run_explain,
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
        return _encode(self._state.prepare(_decode(payload, JobSpec)))

    def _run_select(self, payload: bytes) -> bytes:
        plan = _decode(payload, Round)
        self._state.retrain()
        proposals, invalid = self._state.session.select(plan)
        picks = tuple(
            Pick(p.draft.candidate, p.origin, p.predicted, p.draft.features.astype("<f4").tobytes()) for p in proposals
        )
        return _encode(Selected(plan.number, picks, entries=tuple(plan.entries), invalid=invalid))

    def _run_update(self, payload: bytes) -> bytes:
        del payload
        session, device_type = self._state.session, self._state.spec.device_type.digest
        learnt = session.learn()
        versions: list[ModelVersion] = []
        blobs: dict[str, bytes] = {}
        for family, model in learnt.models.items():
            seen = [
                state
                for workload, state in session.states.items()
                if learnt.families.get(workload, state.family) == family and state.features
            ]
            blob = TrainedModel(model.to_bytes(), tuple(state.subject for state in seen)).to_bytes()
            digest = digest_of(blob)
            rows = sum(len(state.features) for state in seen)
            versions.append(ModelVersion(digest, family, device_type, self._feature_version, rows))
            blobs[digest] = blob
        return _encode(Updated(tuple(versions), blobs, learnt.families, learnt.rounds))

    def _run_draft(self, payload: bytes) -> bytes:
        wanted = _decode(payload, DraftPrograms)
        drafted = self._backend.draft(
            wanted.chosen, self._state.programs.kernels, keeping=wanted.keeping, beside=wanted.beside
        )
        if drafted.packaged is None or not wanted.alone:
            return _encode(drafted)
        return _encode(DraftResult(self._set_apart(drafted.packaged, wanted)))

    def _run_explain(self, payload: bytes) -> bytes:
        return _encode(within(_decode(payload, float), self._backend.explain))

    def _run_package(self, payload: bytes) -> bytes:
        wanted = _decode(payload, DraftPrograms)
        packaged = self._backend.package(
            wanted.chosen, self._state.programs.kernels, keeping=wanted.keeping, untuned=wanted.untuned
        )
        return _encode(self._set_apart(packaged, wanted) if wanted.alone else packaged)

    def _set_apart(self, packaged: Packaged, wanted: DraftPrograms) -> Packaged:
        """Add the networks that compute each subgraph twice, for the comparison of single subgraphs."""
        apart = self._backend.set_apart(wanted.chosen, self._state.programs.kernels)
        digests = packaged.digests | apart.digests
        return msgspec.structs.replace(packaged, each_alone=apart.paths, left_out=apart.left_out, digests=digests)

    # -- next stages ------------------------------------------------------------------------------------------

    def _next(self) -> Iterable[Saying]:
        works = self._planner.next(self._asked_to_stop)
        if works:
            yield OfferStages(tuple(works), self._planner.ahead(), self._planner.seconds())
            yield self._progress(works[-1].stage.kind)
        elif self._planner.idle:
            yield self._finish()

    def _finish(self) -> Finished:
        state = self._state
        if state.setbacks >= TRIES:
            return Finished(True, f"{state.setback} (tried {state.setbacks} times)", b"")
        if state.failure:
            return Finished(True, state.failure, b"")
        if state.prepared is None:
            raise OrderError("the model must be prepared first")
        if state.is_wrong:
            where = f" from {state.culprit} on" if state.culprit else ""
            cause = state.check.cause if state.check is not None else ""
            return Finished(True, f"{state.prepared.model_name} cannot be tuned{where}: {cause}", b"", refused=True)
        if not state.spec.options.search:
            return self._finish_compiled(state.notes)
        if not state.anything_measured():
            if self._asked_to_stop and state.checked is not None:
                return self._finish_compiled([*state.notes, _UNMEASURED])
            why = state.statistics.story() or self._asked_to_stop or "no candidate was valid"
            return Finished(True, f"nothing could be measured: {why}", b"")
        summary = state.finalists.summary(
            state.prepared, state.statistics, self._planner.reason, state.packaged, state.proof, state.notes,
            state.baselines.latencies, state.shipping(),
        )  # fmt: skip
        return Finished(False, self._planner.reason, _encode(summary))

    def _finish_compiled(self, notes: Sequence[str]) -> Finished:
        """The end of a job that has compiled and checked the network, and measured none of its programs."""
        state = self._state
        if state.prepared is None:
            raise OrderError("the model must be prepared first")
        summary = state.finalists.summary(
            state.prepared, state.statistics, self._planner.reason, state.packaged or state.draft,
            state.proof or state.checked_proof, notes, state.baselines.latencies,
        )  # fmt: skip
        return Finished(False, self._planner.reason, _encode(summary))

    # -- progress ---------------------------------------------------------------------------------------------

    def _progress(self, stage: str) -> Progress:
        state = self._state
        session = state.session if state.prepared else None
        left = forecast = None
        if session is not None:
            over = bool(self._planner.reason)
            limits = limits_of(state, state.finalists.outstanding_trials if over else None)
            left = limits.seconds_left(searching=not over, narrowing=state.narrowing.may_try)
            forecast = None if over else self._forecast(limits)
            if left is not None and state.baselines.wanted is not None and state.spec.options.minutes is None:
                left += self._stages.baseline_s(state.baselines.wanted)
            if left is not None:
                left += self._planner.proof_seconds
        entries = state.plan.entries if state.plan else ()
        name = ""
        if len(entries) == 1 and state.prepared is not None:
            name = next((s.place for s in state.prepared.subgraphs if s.workload == entries[0].workload), "")
        report = state.statistics.report(stage, name, state.spec.options, session, left)
        report = msgspec.structs.replace(report, forecast=forecast)
        return Progress(_encode(state.baselines.shown(report, state.untuned_us() if session is not None else ())))

    def _forecast(self, limits: SearchLimits) -> LatencyForecast | None:
        """What the result will likely take, only to be shown.

        None of a result that runs partly in onnxruntime or computes in narrower types: no such runs were judged.
        """
        state, left = self._state, limits.search_seconds_left()
        prepared, peak = state.prepared, state.statistics.peak
        if left is None or prepared is None or prepared.hybrid or state.spec.options.error_budget is not None:
            return None
        floor_ms = 0.0 if peak is None else least_ms(prepared.subgraphs, peak)
        return foretell_end(state.statistics.curve, state.statistics.at, left, floor_ms)

    @property
    def _state(self) -> JobState:
        if self._opened is None:
            raise OrderError("a job must be opened first")
        return self._opened
