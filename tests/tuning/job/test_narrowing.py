"""Precisions narrower than fp32: they are tried within an error budget, and what ships was tried."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence

import msgspec
import pytest

from kintune.core.candidate import UNTUNED, Candidate, Sketch
from kintune.core.config import JobSpec, Metric, Options, Strategy
from kintune.core.keeping import Keeping
from kintune.core.outcome import Outcome
from kintune.core.stage_requests import Built, ValidationContext, ValidationItem
from kintune.core.stage_results import Prepared, StageName, ValidationResult
from kintune.core.verdict import Verdict
from kintune.tuning.job.precision_choice import MARGIN
from tests.support.rehearsal import Cast, PlainJournal, Rehearsal
from tests.support.toy_runs import ended
from tests.support.toy_tools import ToyTools, toy_space, toy_spec

BUDGET = 1e-2


class NarrowSpace:
    """The toy space, in which the second sketch of each tunable workload computes in bf16."""

    def __init__(self) -> None:
        self._space = toy_space()
        self.narrow = {self._space.sketches(f"w{i}")[1].digest: f"w{i}" for i in range(3)}

    def sketches(self, workload: str) -> Sequence[Sketch]:
        """The sketches of the toy space."""
        trace = json.dumps({"precision": "bf16"}).encode()
        return [
            msgspec.structs.replace(sketch, trace=trace) if sketch.digest in self.narrow else sketch
            for sketch in self._space.sketches(workload)
        ]

    def __getattr__(self, name: str) -> object:
        return getattr(self._space, name)


class NarrowTools(ToyTools):
    """The compiler of that space."""

    def __init__(self, space: NarrowSpace) -> None:
        super().__init__(space=space)  # type: ignore[arg-type]

    def prepare(self, spec: JobSpec) -> Prepared:
        """As it was said to, with narrow sketches if they may be."""
        prepared = super().prepare(spec)
        if spec.options.precisions:
            return prepared
        wide = tuple(sketch for sketch in prepared.sketches if b"precision" not in sketch.trace)
        return msgspec.structs.replace(prepared, sketches=wide)


class NarrowCast(Cast):
    """Narrow programs take half as long; each workload has an error, which add up as independent ones do."""

    def __init__(self, space: NarrowSpace, errors: Mapping[str, float], held_back: float = 0.0) -> None:
        super().__init__(space)  # type: ignore[arg-type]
        self._narrow, self._errors, self._held_back = space.narrow, errors, held_back
        self.tried: list[frozenset[str]] = []
        self.chosen: Mapping[str, str] = {}
        self.digests: dict[str, str] = {}

    def time(self, candidate: Candidate, kind: str) -> Outcome:
        outcome = super().time(candidate, kind)
        if candidate.sketch in self._narrow and outcome.ok:
            self.digests[candidate.digest] = candidate.workload
            return msgspec.structs.replace(outcome, times_us=tuple(0.2 * us for us in outcome.times_us))
        return outcome

    def error(self, draft: Mapping[str, str]) -> ValidationResult:
        narrow = frozenset(w for w, digest in draft.items() if digest in self.digests)
        self.tried.append(narrow)
        error = math.sqrt(sum(self._errors[workload] ** 2 for workload in narrow))
        return msgspec.structs.replace(super().error(draft), norm_error=error)

    def prove(self) -> ValidationResult:
        proof = super().prove()
        if self._held_back and len(self.tried[-1]) > 1:
            return msgspec.structs.replace(
                proof, verdict=Verdict.WRONG, norm_error=self._held_back, disagreement="too far"
            )
        return msgspec.structs.replace(proof, norm_error=1e-3)


def options(precision: str = "bf16") -> Options:
    return Options(
        trials=60,
        strategy=Strategy(round_size=6, foresee_size=3),
        precision=precision,  # type: ignore[arg-type]
        max_error=BUDGET,
    )


def narrow_of(rehearsal: Rehearsal) -> dict[str, str]:
    summary = ended(rehearsal)
    return {each.workload: each.precision for each in summary.subgraphs if each.precision != "fp32"}


@pytest.fixture
def space() -> NarrowSpace:
    return NarrowSpace()


def test_in_fp32_nothing_is_tried(space: NarrowSpace) -> None:
    rehearsal = Rehearsal(lambda: NarrowTools(space), toy_spec(options("fp32")), NarrowCast(space, {})).run()
    assert rehearsal.counts(StageName.PRECISION) == rehearsal.counts(StageName.ERROR) == 0
    assert narrow_of(rehearsal) == {}


def test_where_the_error_is_small_everything_that_is_faster_is_narrow(space: NarrowSpace) -> None:
    cast = NarrowCast(space, dict.fromkeys(["w0", "w1", "w2"], 1e-4))
    tools = NarrowTools(space)
    rehearsal = Rehearsal(lambda: tools, toy_spec(options()), cast).run()
    assert rehearsal.counts(StageName.ERROR) == 1
    assert narrow_of(rehearsal) == dict.fromkeys(["w0", "w1", "w2"], "bf16")
    assert all(tools.packaged[-1][w].sketch in space.narrow for w in ("w0", "w1", "w2"))
    assert all(c.sketch not in space.narrow for drafted in tools.drafted[:-1] for c in drafted.values())


def test_a_network_that_is_too_far_off_is_narrow_in_part(space: NarrowSpace) -> None:
    cast = NarrowCast(space, {"w0": 1e-4, "w1": 2 * BUDGET, "w2": 1e-4})
    tools = NarrowTools(space)
    rehearsal = Rehearsal(lambda: tools, toy_spec(options()), cast).run()
    assert narrow_of(rehearsal) == {"w0": "bf16", "w2": "bf16"}
    assert tools.packaged[-1]["w1"].sketch not in {*space.narrow, UNTUNED}
    assert cast.tried[0] == {"w0", "w1", "w2"}
    assert cast.tried[-1] == {"w0", "w2"}


def test_where_the_minutes_are_over_subgraphs_are_tried_no_longer_one_by_one(space: NarrowSpace) -> None:
    hasty = msgspec.structs.replace(options(), minutes=1e-3)
    errors = {"w0": 1e-4, "w1": 2 * BUDGET, "w2": 1e-4}
    tools = NarrowTools(space)
    rehearsal = Rehearsal(lambda: tools, toy_spec(hasty), NarrowCast(space, errors)).run()
    assert rehearsal.counts(StageName.ERROR) == 3  # all of them, then one or two of them
    assert "w1" not in narrow_of(rehearsal)
    assert any("more --minutes" in note for note in ended(rehearsal).notes)


def test_nothing_is_narrow_where_nothing_fits(space: NarrowSpace) -> None:
    cast = NarrowCast(space, dict.fromkeys(["w0", "w1", "w2"], BUDGET))
    rehearsal = Rehearsal(lambda: NarrowTools(space), toy_spec(options()), cast).run()
    assert BUDGET > MARGIN * BUDGET
    assert narrow_of(rehearsal) == {}


def test_what_fails_on_inputs_held_back_is_chosen_more_strictly(space: NarrowSpace) -> None:
    cast = NarrowCast(space, dict.fromkeys(["w0", "w1", "w2"], 4e-3), held_back=1.5 * BUDGET)
    tools = NarrowTools(space)
    rehearsal = Rehearsal(lambda: tools, toy_spec(options()), cast).run()
    assert rehearsal.counts(StageName.PROVE) > 1
    assert len(narrow_of(rehearsal)) == 1
    assert len(tools.packaged) == rehearsal.counts(StageName.PROVE)


def test_a_job_that_is_killed_while_precisions_are_tried_goes_on(space: NarrowSpace) -> None:
    errors = {"w0": 1e-4, "w1": 2 * BUDGET, "w2": 1e-4}

    def kill(rehearsal: Rehearsal) -> None:
        if rehearsal.history[-1].kind in (StageName.PRECISION, StageName.ERROR):
            rehearsal.kill_process()

    whole = Rehearsal(lambda: NarrowTools(space), toy_spec(options()), NarrowCast(space, errors)).run()
    cut = Rehearsal(lambda: NarrowTools(space), toy_spec(options()), NarrowCast(space, errors), interfere=kill).run()
    assert narrow_of(cut) == narrow_of(whole)


def test_who_stops_a_job_waits_for_no_more_than_one_network(space: NarrowSpace) -> None:
    def stop(rehearsal: Rehearsal) -> None:
        if rehearsal.history[-1].kind == StageName.PRECISION:
            rehearsal.stop()

    cast = NarrowCast(space, {"w0": 1e-4, "w1": 2 * BUDGET, "w2": 1e-4})
    rehearsal = Rehearsal(lambda: NarrowTools(space), toy_spec(options()), cast, interfere=stop).run()
    assert rehearsal.counts(StageName.ERROR) == 1
    assert narrow_of(rehearsal) == {}


def test_a_choice_and_its_check_have_different_inputs() -> None:
    from kintune.core.stage_results import Packaged
    from kintune.tuning.job.stage_factory import StageFactory

    def items(files: tuple[str, ...]) -> tuple[ValidationItem, ValidationItem]:
        stages = StageFactory(msgspec.structs.replace(toy_spec(options()), input_files=files))
        packaged = Packaged("toy.kt", {}, onnx="toy.onnx")
        works = stages.error(packaged), stages.prove(packaged, narrow=True)
        contexts = [msgspec.msgpack.decode(work.context, type=ValidationContext) for work in works]
        assert [context.max_error for context in contexts] == [BUDGET, BUDGET]
        one, other = (msgspec.msgpack.decode(work.items[0], type=ValidationItem) for work in works)
        return one, other

    choice, check = items(("a.npz", "b.npz", "c.npz"))
    assert (choice.inputs, check.inputs) == (("a.npz", "b.npz"), ("c.npz",))
    assert check.input_names == ("c.npz",)
    choice, check = items(())
    assert not set(range(choice.seed, choice.seed + choice.draws)) & set(range(check.seed, check.seed + check.draws))
    choice, check = items(("a.npz",))
    assert choice.inputs == check.inputs == ("a.npz",)


@pytest.mark.parametrize(("wanted", "drawn"), [(1, 4), (9, 9)])
def test_outputs_are_compared_on_as_many_random_sets_as_are_wanted(wanted: int, drawn: int) -> None:
    from kintune.core.stage_results import Packaged
    from kintune.tuning.job.stage_factory import StageFactory

    stages = StageFactory(toy_spec(msgspec.structs.replace(options(), random_sets=wanted)))
    packaged = Packaged("toy.kt", {}, onnx="toy.onnx")
    works = stages.check(packaged), stages.prove(packaged), stages.error(packaged), stages.prove(packaged, narrow=True)
    items = [msgspec.msgpack.decode(work.items[0], type=ValidationItem) for work in works]
    assert [item.draws for item in items] == [wanted, wanted, drawn, drawn]
    assert items[3].seed == items[2].seed + drawn
    assert works[0].item_timeout_s == 300 + 30 * (wanted - 1)


@pytest.mark.parametrize(
    ("quantised", "metric", "apart"),
    [(None, None, None), ("quantised.onnx", None, 2 * BUDGET), ("quantised.onnx", Metric("m", "f", "", 0.1), 0.05)],
)
def test_a_quantised_network_is_checked_by_norm_against_itself(
    quantised: str | None, metric: Metric | None, apart: float | None
) -> None:
    """Where a value lies between two steps, each runtime takes another, and what follows moves with it."""
    from kintune.core.stage_results import Packaged
    from kintune.tuning.job.stage_factory import StageFactory

    stages = StageFactory(toy_spec(msgspec.structs.replace(options(), metric=metric)))
    work = stages.check(Packaged("toy.kt", {}, onnx="toy.onnx", quantised=quantised))
    assert msgspec.msgpack.decode(work.context, type=ValidationContext).max_error == apart
    item = msgspec.msgpack.decode(work.items[0], type=ValidationItem)
    assert (item.onnx, item.metric) == (quantised or "toy.onnx", None)


class KeepingCast(NarrowCast):
    """What is said of the network with tensors in bf16: its error, and its time beside the one without."""

    def __init__(self, space: NarrowSpace, error: float, ms: float, held_back: float = 0.0) -> None:
        super().__init__(space, dict.fromkeys(["w0", "w1", "w2"], 1e-4))
        self._error, self._ms, self._wrong = error, ms, held_back
        self._asked = 0
        self.proofs = 0

    def error(self, draft: Mapping[str, str]) -> ValidationResult:
        self._asked += 1
        found = super().error(draft)
        if self._asked < 2:
            return found
        if self._asked > 2 and self._ms < 0.9:  # what is rounded anyway adds no error
            return msgspec.structs.replace(found, beside_ms=((self._ms,) * 3, (1.0,) * 3))
        return msgspec.structs.replace(found, norm_error=self._error, beside_ms=((self._ms,) * 3, (1.0,) * 3))

    def prove(self) -> ValidationResult:
        self.proofs += 1
        if self._wrong and self.proofs == 1:
            return msgspec.structs.replace(super().prove(), verdict=Verdict.WRONG, norm_error=self._wrong)
        return super().prove()


@pytest.mark.parametrize(
    ("error", "ms", "kept"),
    [
        (1e-3, 0.9, Keeping.ALL),
        (1e-3, 1.1, Keeping.NONE),
        (1e-3, 0.995, Keeping.NONE),
        (0.9 * BUDGET, 0.5, Keeping.EXACT),
        (math.nan, 0.5, Keeping.EXACT),
    ],
)
def test_tensors_are_kept_where_the_network_is_faster_and_near_enough(
    space: NarrowSpace, error: float, ms: float, kept: Keeping
) -> None:
    tools = NarrowTools(space)
    tools.kept_tensors = 5
    rehearsal = Rehearsal(lambda: tools, toy_spec(options()), KeepingCast(space, error, ms)).run()
    assert rehearsal.counts(StageName.ERROR) == (2 if kept is Keeping.ALL else 3)
    packaged = ended(rehearsal).packaged
    assert packaged is not None
    assert packaged.kept == (5 if kept else 0)
    assert tools.keeping[-1] is kept
    assert narrow_of(rehearsal) == dict.fromkeys(["w0", "w1", "w2"], "bf16")


def test_tensors_that_add_an_error_are_the_first_to_be_given_up(space: NarrowSpace) -> None:
    tools = NarrowTools(space)
    tools.kept_tensors = 5
    cast = KeepingCast(space, 1e-3, 0.5, held_back=2 * BUDGET)
    rehearsal = Rehearsal(lambda: tools, toy_spec(options()), cast).run()
    assert tools.keeping == [Keeping.ALL, Keeping.EXACT]
    assert narrow_of(rehearsal) == dict.fromkeys(["w0", "w1", "w2"], "bf16")
    assert cast.proofs == rehearsal.counts(StageName.PROVE) == 2


def test_nothing_is_kept_in_fp32(space: NarrowSpace) -> None:
    tools = NarrowTools(space)
    tools.kept_tensors = 5
    cast = NarrowCast(space, dict.fromkeys(["w0", "w1", "w2"], 2 * BUDGET))
    rehearsal = Rehearsal(lambda: tools, toy_spec(options()), cast).run()
    packaged = ended(rehearsal).packaged
    assert packaged is not None
    assert packaged.kept == 0


class RuleCast(NarrowCast):
    """Nothing is timed; the first network that is tried takes `ms` beside one that takes 1 ms."""

    def __init__(
        self, space: NarrowSpace, errors: Mapping[str, float], held_back: float = 0.0, *, ms: float = 0.5
    ) -> None:
        super().__init__(space, errors, held_back)
        self._ms = ms

    def build(self, candidate: Candidate) -> Built:
        """As usual; of narrow programs it is noted whose they are."""
        if candidate.sketch in self._narrow:
            self.digests[candidate.digest] = candidate.workload
        return super().build(candidate)

    def error(self, draft: Mapping[str, str]) -> ValidationResult:
        """As usual, with times."""
        return msgspec.structs.replace(super().error(draft), beside_ms=((self._ms,) * 3, (1.0,) * 3))


def compiled(tools: ToyTools, cast: Cast, precision: str = "bf16") -> Rehearsal:
    """A compilation without a search."""
    wanted = msgspec.structs.replace(options(precision), search=False, trials=None)
    return Rehearsal(lambda: tools, toy_spec(wanted), cast).run()


ALL = ("w0", "w1", "w2")
MEASURED = (StageName.PROFILE, StageName.CONFIRM, StageName.BASELINE)


def test_a_compilation_is_narrow_by_rule_and_nothing_is_timed_for_it(space: NarrowSpace) -> None:
    cast, tools = RuleCast(space, dict.fromkeys(ALL, 1e-4)), NarrowTools(space)
    rehearsal = compiled(tools, cast)
    assert narrow_of(rehearsal) == dict.fromkeys(ALL, "bf16")
    assert not any(rehearsal.counts(kind) for kind in MEASURED)
    assert rehearsal.counts(StageName.ERROR) == rehearsal.counts(StageName.PROVE) == 1
    assert all(tools.packaged[-1][w].sketch in space.narrow for w in ALL)
    wide, tried = tools.drafted[0], tools.drafted[1]
    assert not any(candidate.sketch in space.narrow for candidate in wide.values())
    assert [*map(bool, tools.beside)] == [False, True]
    assert tools.beside[1] == wide
    assert tools.packaged[-1] == tried


def test_a_compilation_in_fp32_is_what_was_checked(space: NarrowSpace) -> None:
    tools = NarrowTools(space)
    rehearsal = compiled(tools, RuleCast(space, {}), "fp32")
    assert len(tools.drafted) == 1
    assert not tools.packaged
    assert rehearsal.counts(StageName.BUILD) == rehearsal.counts(StageName.PROVE) == 0
    assert ended(rehearsal).packaged is not None


def test_a_compilation_stays_wide_where_narrow_is_no_faster(space: NarrowSpace) -> None:
    tools = NarrowTools(space)
    rehearsal = compiled(tools, RuleCast(space, dict.fromkeys(ALL, 1e-4), ms=0.995))
    assert narrow_of(rehearsal) == {}
    assert rehearsal.counts(StageName.ERROR) == 1
    assert tools.packaged == [tools.drafted[0]]


def test_a_compilation_is_narrow_in_part_where_all_of_it_is_too_far_off(space: NarrowSpace) -> None:
    cast, tools = RuleCast(space, {"w0": 1e-4, "w1": 2 * BUDGET, "w2": 1e-4}), NarrowTools(space)
    assert narrow_of(compiled(tools, cast)) == {"w0": "bf16", "w2": "bf16"}
    assert [*map(bool, tools.beside)][:3] == [False, True, False]  # only the first is timed beside the one in fp32


def test_a_compilation_that_fails_on_inputs_held_back_is_chosen_more_strictly(space: NarrowSpace) -> None:
    cast = RuleCast(space, dict.fromkeys(ALL, 4e-3), held_back=1.5 * BUDGET)
    rehearsal = compiled(NarrowTools(space), cast)
    assert rehearsal.counts(StageName.PROVE) > 1
    assert len(narrow_of(rehearsal)) == 1


def test_a_compilation_that_is_killed_goes_on(space: NarrowSpace) -> None:
    def kill(rehearsal: Rehearsal) -> None:
        is_first = rehearsal.counts(StageName.BUILD) == 1 and rehearsal.history[-1].kind == StageName.BUILD
        if is_first or rehearsal.history[-1].kind in (StageName.PRECISION, StageName.ERROR):
            rehearsal.kill_process()

    wanted = msgspec.structs.replace(options(), search=False, trials=None)
    errors = {"w0": 1e-4, "w1": 2 * BUDGET, "w2": 1e-4}
    cut = Rehearsal(lambda: NarrowTools(space), toy_spec(wanted), RuleCast(space, errors), interfere=kill).run()
    assert narrow_of(cut) == {"w0": "bf16", "w2": "bf16"}


def test_a_network_in_tried_precisions_whose_file_is_gone_is_compiled_again(space: NarrowSpace) -> None:
    def interrupt(rehearsal: Rehearsal) -> None:
        if rehearsal.history[-1].kind == StageName.PRECISION:
            rehearsal.kill()

    cast = NarrowCast(space, dict.fromkeys(["w0", "w1", "w2"], 1e-4))
    first = Rehearsal(lambda: NarrowTools(space), toy_spec(options()), cast, interfere=interrupt).run()
    for keeps, compiled_networks in ((True, 1), (False, 2)):
        tools = NarrowTools(space)
        tools.keeps = keeps
        journal = PlainJournal(first.history)
        again = Rehearsal(lambda tools=tools: tools, toy_spec(options()), cast, journal=journal).run()
        tried = [event.kind for event in again.history].index(StageName.ERROR)
        assert [e.kind for e in again.history[:tried]].count(StageName.PRECISION) == compiled_networks
        assert narrow_of(again) == dict.fromkeys(["w0", "w1", "w2"], "bf16")


def test_what_is_compiled_is_proven_without_being_timed() -> None:
    from kintune.core.stage_results import Packaged
    from kintune.tuning.job.stage_factory import StageFactory

    for search in (True, False):
        stages = StageFactory(toy_spec(msgspec.structs.replace(options(), search=search)))
        work = stages.prove(Packaged("toy.kt", {}, onnx="toy.onnx"), narrow=True)
        assert msgspec.msgpack.decode(work.items[0], type=ValidationItem).timed is search
