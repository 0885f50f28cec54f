"""A tuning job whose network fails its check, and hands nodes over to onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from kintune.core.candidate import Candidate
from kintune.core.config import JobSpec
from kintune.core.stage_requests import Built
from kintune.core.stage_results import DraftResult, Prepared, SlowPart, StageName, Summary, ValidationResult
from kintune.core.verdict import Verdict
from kintune.tuning.job.handover import slow_line
from tests.support.rehearsal import Cast, PlainJournal, Rehearsal
from tests.support.toy_runs import ended, failed, with_limits
from tests.support.toy_tools import ToyTools, toy_spec

WRONG = ValidationResult({}, 1.0, 1.0, Verdict.WRONG, ("onnxruntime",), {}, "output 'y': 1 of 1 values differ")
COMPILED = msgspec.structs.replace(toy_spec(), options=msgspec.structs.replace(toy_spec().options, search=False))
SPEC = with_limits(trials=3)


class World:
    """A network of which some nodes are wrong, however it is lowered, until they are handed over.

    `found` has what is named as the culprit, one after the other; the last one stays.  `prepared` lists how the network
    was prepared: conservatively or not, with the nodes handed over.
    """

    def __init__(self, wrong: Sequence[str], found: Sequence[str], *, may: bool = True) -> None:
        self.wrong = frozenset(wrong)
        self.found = list(found)
        self.may = may
        self.now: frozenset[str] = frozenset()
        self.prepared: list[tuple[bool, tuple[str, ...]]] = []

    @property
    def is_wrong(self) -> bool:
        return bool(self.wrong - self.now) and "*" not in self.now


class Tools(ToyTools):
    """Prepares the network of a world; with "*" nothing of it is left to compile."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self._handed_over: tuple[str, ...] = ()

    def prepare(self, spec: JobSpec) -> Prepared:
        world = self._world
        world.now = frozenset(spec.handed_over)
        world.prepared.append((spec.conservative, spec.handed_over))
        self._handed_over = spec.handed_over
        prepared = super().prepare(spec)
        if "*" in spec.handed_over:
            prepared = msgspec.structs.replace(prepared, subgraphs=(), modules={}, sketches=())
        notes = (f"1 region of the graph is compiled; onnxruntime runs LSTM ({len(spec.handed_over)})",)
        return msgspec.structs.replace(
            prepared,
            can_hand_over=world.may,
            handed_over=spec.handed_over,
            hybrid=bool(spec.handed_over),
            notes=notes if spec.handed_over and "*" not in spec.handed_over else (),
        )

    def explain(self) -> str:
        """The next culprit; what is explained again is the same, as by a compiler."""
        found = self._world.found
        return found[min(len(self._handed_over), len(found) - 1)]


class Judge(Cast):
    """Checks the network of a world."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def check(self, draft: Mapping[str, str]) -> ValidationResult:
        return WRONG if self._world.is_wrong else super().check(draft)


def played(world: World, spec: JobSpec = SPEC) -> Rehearsal:
    return Rehearsal(lambda: Tools(world), spec, Judge(world)).run()


class TestAKnownCulprit:
    def test_it_is_prepared_again_with_that_node_handed_over(self) -> None:
        world = World(["LSTM 'a'"], ["LSTM 'a'"])
        summary = ended(played(world))
        assert world.prepared == [(False, ()), (True, ()), (False, ("LSTM 'a'",))]
        assert summary.notes == (
            f"LSTM 'a' runs in onnxruntime: compiled, {WRONG.disagreement}",
            "1 region of the graph is compiled; onnxruntime runs LSTM (1)",
        )
        assert summary.proof is not None

    def test_nothing_is_measured_before_it_is_right(self) -> None:
        world = World(["LSTM 'a'"], ["LSTM 'a'"])
        rehearsal = played(world)
        kinds = [event.kind for event in rehearsal.history]
        last = max(at for at, kind in enumerate(kinds) if kind == StageName.PREPARE)
        assert StageName.PROFILE not in kinds[:last]
        assert StageName.PROFILE in kinds[last:]

    def test_one_after_the_other_is_found(self) -> None:
        world = World(["LSTM 'a'", "GRU 'b'"], ["LSTM 'a'", "GRU 'b'"])
        summary = ended(played(world))
        assert world.prepared == [
            (False, ()), (True, ()),
            (False, ("LSTM 'a'",)), (True, ("LSTM 'a'",)),
            (False, ("LSTM 'a'", "GRU 'b'")),
        ]  # fmt: skip
        assert [note for note in summary.notes if "compiled, " in note] == [
            f"LSTM 'a' runs in onnxruntime: compiled, {WRONG.disagreement}",
            f"GRU 'b' runs in onnxruntime: compiled, {WRONG.disagreement}",
        ]
        assert summary.notes[-1] == "1 region of the graph is compiled; onnxruntime runs LSTM (2)"
        assert "1 region of the graph is compiled; onnxruntime runs LSTM (1)" not in summary.notes  # that was before

    def test_after_many_the_whole_model_runs_in_onnxruntime(self) -> None:
        names = [f"Relu '{at}'" for at in range(20)]
        world = World(names, names)
        ended(played(world))
        assert world.prepared[-1] == (False, ("*",))
        assert max(len(handed_over) for _, handed_over in world.prepared) == 8

    def test_what_is_compiled_without_a_search_is_handed_over_too(self) -> None:
        world = World(["LSTM 'a'"], ["LSTM 'a'"])
        summary = ended(played(world, COMPILED))
        assert world.prepared[-1] == (False, ("LSTM 'a'",))
        assert summary.reason == "compiled"

    def test_a_network_that_cannot_be_compiled_is_handed_over_too(self) -> None:
        world = World(["LSTM 'a'"], ["LSTM 'a'"])

        class Picky(Tools):
            def draft(
                self, chosen: Mapping[str, Candidate], kernels: Mapping[str, Built], **options: Any
            ) -> DraftResult:
                return (
                    DraftResult(None, "no such instruction")
                    if world.is_wrong
                    else super().draft(chosen, kernels, **options)
                )

        summary = ended(Rehearsal(lambda: Picky(world), SPEC, Judge(world)).run())
        assert world.prepared[-1] == (False, ("LSTM 'a'",))
        assert summary.notes[0] == "LSTM 'a' runs in onnxruntime: compiled, no such instruction"


class TestAnUnknownCulprit:
    @pytest.mark.parametrize(
        ("found", "tried"),
        [
            ([""], [(False, ()), (True, ()), (False, ("*",))]),
            (["LSTM 'a'"], [(False, ()), (True, ()), (False, ("LSTM 'a'",)), (True, ("LSTM 'a'",)), (False, ("*",))]),
        ],
        ids=["unknown", "repeated"],
    )
    def test_the_whole_model_runs_in_onnxruntime(self, found: list[str], tried: list[tuple[bool, object]]) -> None:
        world = World(["something else"], found)
        summary = ended(played(world))
        assert world.prepared == tried
        assert f"the whole model runs in onnxruntime: compiled, {WRONG.disagreement}" in summary.notes
        assert (summary.trials, summary.subgraphs) == (0, ())

    def test_a_search_for_it_that_fails_is_as_if_it_were_unknown(self) -> None:
        class Broken(Tools):
            def explain(self) -> str:
                raise RuntimeError("out of memory")

        world = World(["something else"], [""])
        ended(Rehearsal(lambda: Broken(world), SPEC, Judge(world)).run())
        assert world.prepared[-1] == (False, ("*",))

    def test_what_is_wrong_even_then_is_refused(self) -> None:
        class Never(Cast):
            def check(self, draft: Mapping[str, str]) -> ValidationResult:
                return WRONG

        world = World(["something else"], [""])
        rehearsal = Rehearsal(lambda: Tools(world), SPEC, Never()).run()
        assert failed(rehearsal).startswith("toy cannot be tuned")
        assert WRONG.disagreement in failed(rehearsal)


class TestADoubtfulNetwork:
    """Rounding alone moves the reference as far as the compiled network is from it."""

    DOUBT = msgspec.structs.replace(
        WRONG, verdict=Verdict.NOT_COMPARED, disagreement="", doubtful="output 'y': nothing can be said of it"
    )

    class Doubting(Judge):
        def check(self, draft: Mapping[str, str]) -> ValidationResult:
            return TestADoubtfulNetwork.DOUBT if self._world.is_wrong else super().check(draft)

    def test_the_model_runs_in_onnxruntime_at_once(self) -> None:
        """Neither other programs, nor another lowering, nor a node could be found to be at fault."""
        world = World(["everything"], ["LSTM 'a'"])
        rehearsal = Rehearsal(lambda: Tools(world), SPEC, self.Doubting(world)).run()
        summary = ended(rehearsal)
        assert world.prepared == [(False, ()), (False, ("*",))]
        assert f"the whole model runs in onnxruntime: compiled, {self.DOUBT.doubtful}" in summary.notes
        assert rehearsal.counts(StageName.EXPLAIN) == 0

    def test_where_it_may_not_it_is_taken_as_not_compared(self) -> None:
        world = World(["everything"], [""], may=False)
        summary = ended(Rehearsal(lambda: Tools(world), COMPILED, self.Doubting(world)).run())
        assert world.prepared == [(False, ())]
        assert summary.proof is not None
        assert summary.proof.verdict is Verdict.NOT_COMPARED


def test_slow_parts_are_looked_for_only_where_something_is_compiled() -> None:
    world = World(["something else"], [""])
    rehearsal = Rehearsal(lambda: Tools(world), COMPILED, Judge(world)).run()
    ended(rehearsal)
    assert world.prepared[-1] == (False, ("*",))
    assert rehearsal.checks[0].find_slow
    assert not rehearsal.checks[-1].find_slow


def test_a_search_goes_on_after_a_session_that_was_killed() -> None:
    world = World(["LSTM 'a'"], ["LSTM 'a'"])
    undisturbed = played(world)

    def kill(rehearsal: Rehearsal) -> None:
        if rehearsal.counts(StageName.PROFILE) == 1:
            rehearsal.kill()

    first = Rehearsal(lambda: Tools(world), SPEC, Judge(world), interfere=kill).run()
    again = Rehearsal(lambda: Tools(world), SPEC, Judge(world), journal=PlainJournal(first.history)).run()
    assert _decisions(again) == _decisions(undisturbed)
    assert again.picks == undisturbed.picks


class TestNotAllowed:
    def test_the_model_is_refused_and_the_node_is_named(self) -> None:
        world = World(["LSTM 'a'"], ["LSTM 'a'"], may=False)
        rehearsal = played(world)
        assert failed(rehearsal) == f"toy cannot be tuned from LSTM 'a' on: {WRONG.disagreement}"
        assert rehearsal.finished is not None
        assert rehearsal.finished.refused
        assert world.prepared == [(False, ()), (True, ())]
        assert rehearsal.counts(StageName.PROFILE) == 0

    def test_a_right_network_hands_nothing_over(self) -> None:
        world = World([], [""])
        summary = ended(played(world))
        assert world.prepared == [(False, ())]
        assert not summary.notes


WORLDS = {
    "known": lambda: World(["LSTM 'a'"], ["LSTM 'a'"]),
    "two": lambda: World(["LSTM 'a'", "GRU 'b'"], ["LSTM 'a'", "GRU 'b'"]),
    "unknown": lambda: World(["something else"], [""]),
    "repeated": lambda: World(["something else"], ["LSTM 'a'"]),
}


@pytest.mark.parametrize("name", WORLDS)
class TestGoingOn:
    """Whatever dies, and whenever: the decisions are the same.  All of this comes before the search."""

    def test_a_process_that_dies_after_any_event_changes_nothing(self, name: str) -> None:
        undisturbed = played(WORLDS[name](), COMPILED)
        for at in range(1, len(undisturbed.history)):

            def kill_once(rehearsal: Rehearsal, at: int = at) -> None:
                if len(rehearsal.history) == at:
                    rehearsal.kill_process()

            world = WORLDS[name]()
            disturbed = Rehearsal(lambda: Tools(world), COMPILED, Judge(world), interfere=kill_once).run()  # noqa: B023
            assert _decisions(disturbed) == _decisions(undisturbed), at

    def test_a_session_that_is_killed_after_any_event_goes_on(self, name: str) -> None:
        undisturbed = played(WORLDS[name](), COMPILED)
        for at in range(1, len(undisturbed.history)):

            def kill(rehearsal: Rehearsal, at: int = at) -> None:
                if len(rehearsal.history) == at:
                    rehearsal.kill()

            world = WORLDS[name]()
            first = Rehearsal(lambda: Tools(world), COMPILED, Judge(world), interfere=kill).run()  # noqa: B023
            journal = PlainJournal(first.history)
            again = Rehearsal(lambda: Tools(world), COMPILED, Judge(world), journal=journal).run()  # noqa: B023
            assert _decisions(again) == _decisions(undisturbed), at


def _decisions(rehearsal: Rehearsal) -> tuple[object, ...]:
    """The notes, the programs, and the nodes handed over by what was committed."""
    summary = ended(rehearsal)
    prepared = [
        msgspec.msgpack.decode(e.payload, type=Prepared) for e in rehearsal.history if e.kind == StageName.PREPARE
    ]
    handed_over = [each.handed_over for each in prepared]
    return summary.notes, summary.packaged and summary.packaged.chosen, tuple(dict.fromkeys(handed_over))


class TestSlowParts:
    """A network that is only compiled, with parts for which onnxruntime is far faster."""

    PARTS = (SlowPart(("MatMulInteger 'a'", "Cast 'b'"), "a", 620e3, 25e3),)

    class Slow(Judge):
        """Finds these parts in each check that asks for them, one check after the other; the last ones stay."""

        def __init__(self, world: World, *parts: tuple[SlowPart, ...]) -> None:
            super().__init__(world)
            self._parts = list(parts)

        def check(self, draft: Mapping[str, str]) -> ValidationResult:
            now = self._parts.pop(0) if len(self._parts) > 1 else self._parts[0]
            return msgspec.structs.replace(super().check(draft), slow=now)

    def compiled(self, world: World, *parts: tuple[SlowPart, ...]) -> Summary:
        return ended(Rehearsal(lambda: Tools(world), COMPILED, self.Slow(world, *parts)).run())

    def test_their_nodes_run_in_onnxruntime_and_the_note_has_both_times(self) -> None:
        world = World([], [])
        summary = self.compiled(world, self.PARTS, ())
        assert world.prepared == [(False, ()), (False, ("MatMulInteger 'a'", "Cast 'b'"))]
        assert summary.notes[0] == (
            "MatMulInteger 'a', Cast 'b' run in onnxruntime: compiled, a takes 620 ms, and 25 ms in onnxruntime"
        )

    def test_it_is_not_done_for_ever(self) -> None:
        world = World([], [])
        parts = tuple((SlowPart((f"Conv '{at}'",), f"{at}", 620e3, 25e3),) for at in range(5))
        summary = self.compiled(world, *parts)
        assert world.prepared[-1] == (False, ("Conv '0'", "Conv '1'"))
        assert summary.proof is not None
        assert summary.proof.slow == parts[2], "the report says it"

    def test_in_the_end_the_whole_network_may_go(self) -> None:
        world = World([], [])
        whole = SlowPart(("*",), "the whole network", 620e3, 25e3)
        self.compiled(world, self.PARTS, (whole,), ())
        assert world.prepared[-1] == (False, ("*",))

    @pytest.mark.parametrize("parts", [PARTS, (SlowPart(("Conv 'a'",), "a", 620e3, None, 1.2),)])
    def test_where_they_may_not_or_nothing_is_known_to_be_faster_they_stay(self, parts: tuple[SlowPart, ...]) -> None:
        world = World([], [], may=parts is not self.PARTS)
        summary = self.compiled(world, parts)
        assert world.prepared == [(False, ())]
        assert summary.proof is not None
        assert summary.proof.slow == parts


def test_what_a_slow_part_takes_is_said() -> None:
    assert slow_line(SlowPart(("Conv 'a'",), "a", 620e3, 25e3)) == "a takes 620 ms, and 25 ms in onnxruntime"
    alone = slow_line(SlowPart(("Conv 'a'",), "a", 620e3, None, 1.24))
    assert alone == "a takes 620 ms, at 1.2 GFLOP/s: there is no fast kernel for it"


def test_the_set_of_extreme_inputs_that_was_wrong_is_the_first_one_from_then_on() -> None:
    class Once(Cast):
        tries = 0

        def check(self, draft: Mapping[str, str]) -> ValidationResult:
            self.tries += 1
            wrong = msgspec.structs.replace(WRONG, wrong_on="inputs with one NaN")
            return wrong if self.tries == 1 else super().check(draft)

    first, *later = Rehearsal(lambda: Tools(World([], [""])), SPEC, Once()).run().checks
    assert first.first_extreme == ""
    assert {item.first_extreme for item in later} == {"inputs with one NaN"}
