"""Makes the stages of a tuning job, with their demands, contexts and items."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath

import msgspec

from kintune.core.candidate import Candidate
from kintune.core.config import JobSpec
from kintune.core.keeping import Keeping
from kintune.core.messages import Work
from kintune.core.outcome import Outcome, Status
from kintune.core.plan import Round
from kintune.core.stage import Demand, Stage
from kintune.core.stage_requests import (
    BaselineItem,
    BuildContext,
    BuildItem,
    Built,
    ProfileContext,
    ProfileItem,
    ValidationContext,
    ValidationItem,
)
from kintune.core.stage_results import BOARD_FILE, DraftPrograms, Packaged, Prepared, StageName
from kintune.validate.baseline_timing import baseline_conditions, estimate_baselines_s
from kintune.validate.estimate import estimate_validation_s

__all__ = ["BUILD_S", "PROFILE_S", "REFERENCE_S", "SLOW", "StageFactory", "held_back"]

_HOURS = 3600.0
_PREPARE_S = 0.5 * _HOURS
_SELECT_S = 0.25 * _HOURS
BUILD_S = 15.0
"""Limit of one build; candidates that take longer are unrolled too far to be fast."""

PROFILE_S = 10.0
"""Limit of timing one candidate, with its comparison with the untuned program."""

REFERENCE_S = 60.0
"""Limit of timing one candidate if the untuned program must run first."""

SLOW = 1.3
"""A candidate that takes this many times as long as the best so far is timed only once."""

_BASELINE_S = 120.0
_PEAK_S = 60.0
_PACKAGE_S = 0.5 * _HOURS
_PROVE_S = 0.5 * _HOURS
_CHECK_S = 300.0
_EXPLAIN_S = 60.0
_SET_S = 30.0

_SCORES = 200  # how often a model's quantisation computes the users' metric, at most

_APART_BY_SCORE = 0.05
"""With a score in place of an error budget: how far a quantised network may be from itself in onnxruntime."""

_DRAWS = 4
"""Sets of inputs that are drawn to choose precisions, at least, and as many others to check the choice."""

_encode = msgspec.msgpack.encode


def held_back(spec: JobSpec) -> int:
    """Sets of inputs that are held back from the choice of precisions, to check it: half of the user's files, or drawn
    ones; none of a single file.
    """
    return len(spec.input_files) // 2 if spec.input_files else max(_DRAWS, spec.options.random_sets)


class StageFactory:
    """Makes the stages of one job.  The docstring of each method says what its stage does.

    Stage ids are never used twice, also not across restarts.
    """

    def __init__(self, spec: JobSpec) -> None:
        self._spec = spec
        self._used: set[str] = set()
        self._modules: dict[str, bytes] = {}
        self._prepared: Prepared | None = None
        self._candidates: dict[str, Candidate] = {}

    def used(self, stage: str) -> None:
        """Note a stage id that an earlier process of this job has used."""
        self._used.add(stage)

    def prepared(self, prepared: Prepared) -> None:
        """Take in the prepared network."""
        self._prepared = prepared
        self._spec = self._spec.of_network(prepared.subgraphs)
        self._modules = prepared.modules

    def candidate(self, digest: str) -> Candidate | None:
        """Return the candidate of this digest, if a stage of this process was made for it."""
        return self._candidates.get(digest)

    def prepare(self, *, conservative: bool = False, handed_over: tuple[str, ...] = ()) -> Work:
        """Import and lower the model, without layout conversion and rewrites if `conservative`.

        The nodes `handed_over` are to run in onnxruntime.
        """
        spec = msgspec.structs.replace(self._spec, conservative=conservative, handed_over=handed_over)
        limit_s = _PREPARE_S * self._combinations + (_SCORES if spec.calibration_files else 0) * self._score_s
        return self._own(StageName.PREPARE, StageName.PREPARE, _encode(spec), limit_s)

    def draft(self, chosen: Mapping[str, Candidate], *, alone: bool = False) -> Work:
        """Compile the network to check it; with `alone`, so that its subgraphs can be compared one by one."""
        return self._compile(StageName.DRAFT, chosen, alone=alone)

    def explain(self) -> Work:
        """Find the user's node at which the network fails; none is found if that takes too long."""
        patience = _EXPLAIN_S * self._combinations
        return self._own(StageName.EXPLAIN, StageName.EXPLAIN, _encode(patience), 2 * patience)

    def check(self, packaged: Packaged, first_extreme: str = "", *, only_alone: bool = False) -> Work:
        """Run a draft once and compare its outputs with those of baselines, on extreme inputs first on the named set.

        With `only_alone` only its subgraphs are compared, one by one.

        A quantised model is compared with itself in onnxruntime, by norm: a value between two steps may be rounded
        either way, and what follows moves with it.  Each of the two is to be within the error budget of the model in
        fp32, so that they differ by twice that at most.  The error itself is looked at when the result is proven.
        """
        item = msgspec.structs.replace(self._item(packaged), timed=False, first_extreme=first_extreme)
        item = msgspec.structs.replace(item, only_alone=only_alone)
        if not self._spec.options.search and self._prepared is not None and self._prepared.subgraphs:
            flops = sum(subgraph.weight * subgraph.flops for subgraph in self._prepared.subgraphs)
            item = msgspec.structs.replace(item, find_slow=self._spec.device_type.capabilities.plans, flops=flops)
        apart = None
        if packaged.quantised is not None:
            options = self._spec.options
            apart = _APART_BY_SCORE if options.metric is not None else 2 * options.max_error
            item = msgspec.structs.replace(item, onnx=packaged.quantised)
        return self._compare(StageName.CHECK, item, _CHECK_S * self._combinations + self._more_s, apart=apart)

    def baseline(self, item: BaselineItem) -> Work:
        """Time other runtimes on the user's own model."""
        stage = self._stage(StageName.BASELINE, StageName.BASELINE, self._device(), then=self._here())
        constants = (constant.path or None for constant in item.constants.values())
        files = tuple(file for file in (item.onnx, item.exported, *item.inputs, *constants) if file is not None)
        conditions, count = self._baseline_conditions(), len(item.compare) * self._combinations
        timeout_s = count * (conditions.prepare_seconds + _BASELINE_S)
        return Work(stage, "device", _encode(conditions), (_encode(item),), timeout_s, droppable=True, files=files)

    def baseline_s(self, item: BaselineItem) -> float:
        """Return the estimated seconds of timing other runtimes."""
        return estimate_baselines_s(self._baseline_conditions(), len(item.compare), self._combinations)

    def peak(self) -> Work:
        """Measure the device's peak performance."""
        stage = self._stage(StageName.PEAK, StageName.PEAK, self._device(), then=self._here())
        return Work(stage, "device", b"", (b"",), _PEAK_S, droppable=True)

    def select(self, plan: Round) -> Work:
        """Choose the candidates of a round."""
        return self._own(StageName.SELECT, f"select-{plan.number}", _encode(plan), _SELECT_S)

    def update(self, finished_rounds: int) -> Work:
        """Train the cost models of the families last measured."""
        return self._own(StageName.UPDATE, f"update-{finished_rounds - 1}", b"", _SELECT_S)

    def package(
        self,
        chosen: Mapping[str, Candidate],
        *,
        alone: bool = False,
        keeping: Keeping = Keeping.NONE,
        untuned: bool = True,
    ) -> Work:
        """Compile the network; with `alone`, also so that its subgraphs can be compared one by one.

        By `keeping`, tensors are kept in bf16 between kernels where they can be.  With `untuned`, the network under the
        default schedule is compiled as well.
        """
        return self._compile(StageName.PACKAGE, chosen, alone=alone, keeping=keeping, untuned=untuned)

    def _compile(
        self,
        kind: str,
        chosen: Mapping[str, Candidate],
        *,
        alone: bool = False,
        keeping: Keeping = Keeping.NONE,
        beside: Mapping[str, Candidate] | None = None,
        untuned: bool = True,
    ) -> Work:
        wanted = _encode(DraftPrograms(dict(chosen), alone, keeping, dict(beside or {}), untuned))
        return self._own(kind, kind, wanted, _PACKAGE_S * self._combinations)

    def build_draft(self, candidates: Sequence[Candidate]) -> Work:
        """Build the programs of a draft, so that compiling the network need not."""
        return self._build(candidates, "build-draft", BUILD_S)

    def build(self, candidates: Sequence[Candidate], number: int | None, patience_s: float = BUILD_S) -> Work:
        """Build candidates of a round, or (None) of the closing, on all cores of the host, each within `patience_s`."""
        name = f"build-{'end' if number is None else number}"
        return self._build(candidates, name, patience_s, droppable=number is not None)

    def _build(self, candidates: Sequence[Candidate], name: str, patience_s: float, *, droppable: bool = False) -> Work:
        workloads = {c.workload for c in candidates}
        sketches = {c.sketch for c in candidates}
        known = self._prepared.sketches if self._prepared else ()
        context = BuildContext(
            target=self._spec.device_type.target,
            workloads={w: self._modules[w] for w in sorted(workloads)},
            sketches={s.digest: s for s in known if s.digest in sketches},
        )
        self._candidates.update((c.digest, c) for c in candidates)
        stage = self._stage(StageName.BUILD, name, self._here(), then=self._device())
        items = tuple(_encode(BuildItem(c)) for c in candidates)
        return Work(stage, "build", _encode(context), items, patience_s, droppable=droppable)

    def profile(
        self,
        candidates: Sequence[Candidate],
        built: Mapping[Candidate, Built],
        references: Mapping[str, Built],
        number: int | None,
        part: int | None = None,
        best_us: Mapping[str, float] | None = None,
        again: Sequence[Candidate] = (),
    ) -> Work:
        """Time built candidates of a round (or a part of it), or (None) of the closing, alone on a device.

        `best_us` are the best times so far; candidates far from them are timed only once.  `again` are those that were
        timed before.
        """
        confirm = number is None
        options = self._spec.options
        workloads = dict.fromkeys(c.workload for c in candidates)
        context = ProfileContext(
            protocol=self._spec.protocol,
            references={w: (references.get(w) or _no_reference(w)).without_object_file() for w in workloads},
            rtol=options.rtol,
            atol=options.atol,
            best_us={w: time for w, time in (best_us or {}).items() if w in workloads},
            slow=math.inf if confirm else SLOW,
            again=tuple(c.digest for c in again),
            keep_denormals=options.keep_denormals,
        )
        kind = StageName.CONFIRM if confirm else StageName.PROFILE
        name = f"{kind}-{'end' if number is None else number}{'' if part is None else f'-part{part}'}"
        stage = self._stage(kind, name, self._device(), then=self._here())
        items = tuple(_encode(ProfileItem(c.workload, built[c].without_object_file())) for c in candidates)
        timeout = REFERENCE_S if len(workloads) > 1 or confirm else PROFILE_S + REFERENCE_S / 2
        return Work(stage, "device", _encode(context), items, timeout, droppable=not confirm)

    def narrow(
        self,
        chosen: Mapping[str, Candidate],
        *,
        keeping: Keeping = Keeping.NONE,
        beside: Mapping[str, Candidate] | None = None,
    ) -> Work:
        """Compile the network in precisions that are tried; by `keeping`, as for `package`, and once without.

        With programs `beside`, also with these, to be timed beside it.
        """
        return self._compile(StageName.PRECISION, chosen, keeping=keeping, beside=beside)

    def error(self, draft: Packaged) -> Work:
        """Run a network in precisions that are tried, and measure the error of its outputs; time what is beside it."""
        limit_s = _CHECK_S * self._combinations + self._more_s + self._score_s
        inputs = self._split_inputs()[0]
        item = self._item(draft)
        item = msgspec.structs.replace(item, inputs=inputs, timed=False, beside=draft.beside, extremes=False)
        if not item.inputs:
            item = msgspec.structs.replace(item, seed=item.seed + 1, draws=held_back(self._spec))
        return self._compare(StageName.ERROR, item, limit_s, narrow=True)

    def prove(self, packaged: Packaged, untuned_s: float = 0.0, *, narrow: bool = False) -> Work:
        """Compare the executable with the untuned network and with baselines, in outputs and in speed.

        `untuned_s` are the estimated seconds of a run of the untuned network; 0 if they are not known.  What computes
        in a `narrow` precision is compared on inputs that the choice of it has not seen, and by the norm of its error.
        Without a search nothing is timed.
        """
        limit_s = _PROVE_S * self._combinations + self._more_s + self._score_s
        item = msgspec.structs.replace(self._item(packaged), untuned_s=untuned_s, timed=self._spec.options.search)
        if narrow:
            draws = held_back(self._spec)
            item = msgspec.structs.replace(item, inputs=self._split_inputs()[1], draws=draws)
            if not item.inputs:
                item = msgspec.structs.replace(item, seed=item.seed + 1 + draws)
        return self._compare(StageName.PROVE, item, limit_s, narrow=narrow)

    def _split_inputs(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The user's files of inputs for a choice, and those that are held back from it; one file is used for both."""
        files, kept = self._spec.input_files, -held_back(self._spec)
        return (files[:kept], files[kept:]) if len(files) > 1 else (files, files)

    def _compare(
        self, kind: str, item: ValidationItem, timeout_s: float, *, narrow: bool = False, apart: float | None = None
    ) -> Work:
        """Compare outputs: by norm within the error budget if `narrow`, or within `apart`; else element by element."""
        names = tuple(PurePath(path).name for path in item.inputs)
        item = msgspec.structs.replace(item, input_names=names)
        conditions, options = msgspec.structs.replace(self._conditions(), max_error=apart), self._spec.options
        if narrow and options.metric is not None:
            conditions = msgspec.structs.replace(conditions, max_error=math.inf)
            item = msgspec.structs.replace(item, metric=options.metric, held_back=kind == StageName.PROVE)
        elif narrow:
            conditions = msgspec.structs.replace(conditions, max_error=options.error_budget)
        stage = self._stage(kind, kind, self._device(), then=None if kind == StageName.PROVE else self._here())
        constants = (constant.path or None for constant in item.constants.values())
        written = (item.tuned, item.untuned, item.beside)
        is_board = self._spec.device_type.capabilities.remote
        files = (
            *written,
            *(f"{file}{BOARD_FILE}" for file in written if file is not None and is_board),
            item.onnx,
            item.exported,
            *item.each_alone,
            *item.inputs,
            *constants,
        )
        named = tuple(file for file in files if file is not None)
        return Work(stage, "device", _encode(conditions), (_encode(item),), timeout_s, files=named)

    def _item(self, packaged: Packaged) -> ValidationItem:
        """The validation of an executable, with times, on all inputs that the user gave."""
        spec, options = self._spec, self._spec.options
        return ValidationItem(
            tuned=packaged.tuned,
            untuned=packaged.untuned,
            onnx=packaged.onnx,
            exported=packaged.exported,
            constants=packaged.constants,
            inputs=spec.input_files,
            seed=options.seed,
            draws=options.random_sets,
            each_alone=packaged.each_alone,
            titles=self._titles() if any(packaged.each_alone) else {},
            left_out=packaged.left_out,
            compare=options.compare,
            may_hand_over=self._prepared is not None and self._prepared.may_return,
            extremes=True,
        )

    def proof_s(self, tuned_s: float, untuned_s: float) -> float:
        """Return the estimated seconds of the validation of a network, from the seconds of one run, tuned and untuned.

        Of several combinations of shapes, these are the seconds of one run of each.
        """
        rivals, count = len(self._spec.options.compare), self._combinations
        one_s = estimate_validation_s(
            self._conditions(), tuned_s=tuned_s / count, untuned_s=untuned_s / count, baselines=rivals
        )
        return count * one_s

    def duration_key(self, kind: str) -> str:
        """Return the duration key of stages of this kind: one for each model and kind, whichever the job."""
        return f"{self._spec.model.name}/{kind}"

    def _titles(self) -> dict[str, str]:
        return {} if self._prepared is None else {s.workload: s.title for s in self._prepared.subgraphs}

    @property
    def _more_s(self) -> float:
        """Additional seconds for comparing on all sets of inputs but the first."""
        return _SET_S * ((len(self._spec.input_files) or self._spec.options.random_sets) - 1)

    @property
    def _score_s(self) -> float:
        """Seconds that the user's score of a network may take; 0 without one."""
        metric = self._spec.options.metric
        return 0.0 if metric is None else metric.limit_s

    @property
    def _combinations(self) -> int:
        """How many networks are compared: one for each combination of shapes."""
        return len(self._spec.model.combinations)

    def _conditions(self) -> ValidationContext:
        spec = self._spec
        return ValidationContext(threads=spec.protocol.threads, rtol=spec.options.rtol, atol=spec.options.atol)

    def _baseline_conditions(self) -> ValidationContext:
        spec = self._spec
        return baseline_conditions(spec.protocol.threads, minutes=spec.options.minutes, combinations=self._combinations)

    def _own(self, kind: str, name: str, payload: bytes, timeout_s: float) -> Work:
        follows = self._device() if kind in (StageName.PACKAGE, StageName.DRAFT) else self._here()
        stage = self._stage(kind, name, self._here(), then=follows, own=True)
        return Work(stage, "job", b"", (payload,), timeout_s)

    def _here(self) -> Demand:
        return Demand(cores=self._spec.cores)

    def _device(self) -> Demand:
        return Demand(device=self._spec.device, exclusive=True)

    def _stage(self, kind: str, name: str, demand: Demand, *, then: Demand | None = None, own: bool = False) -> Stage:
        name = next(n for n in _numbered(name) if n not in self._used)
        self._used.add(name)
        run = self._spec.run_id
        key = self.duration_key(kind)
        return Stage(name, run, kind, demand, affinity=run if own else None, duration_key=key, then=then)


def _no_reference(workload: str) -> Built:
    """Return a failure in place of a reference that could not be built: the workload's candidates fail with it."""
    failure = Outcome(Status.BUILD_FAILED, cause="the untuned program could not be built")
    return Built(Candidate.untuned(workload).digest, failure=failure)


def _numbered(name: str) -> Iterator[str]:
    yield name
    for number in itertools.count(2):
        yield f"{name}.{number}"
