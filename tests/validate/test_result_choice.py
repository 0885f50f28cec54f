from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import onnx
import pytest

from kintune.core.stage_requests import ValidationContext, ValidationItem
from kintune.errors import EngineError, InputError
from kintune.runtime.hybrid_package import HybridPackage
from kintune.runtime.manifest import read_manifest
from kintune.validate import result_choice
from kintune.validate.baseline_protocol import BaselineContext, BaselineTurn, ProfileTurn
from kintune.validate.interleaved import InterleavedTimes
from kintune.validate.result_choice import ResultChoice
from kintune.validate.validation_run import ValidationRun
from tests.support.partitions import parse
from tests.support.unpublished import THREE_REGIONS, write_unpublished

CONDITIONS = ValidationContext(threads=1)


class TestChoosingRegions:
    def choice_of(self, folder: Path, **item: object) -> ResultChoice:
        path = write_unpublished(folder / "m.kt.unproven")
        onnx.save(parse(THREE_REGIONS), folder / "m.onnx")
        (folder / "proof").mkdir()
        given = {"onnx": str(folder / "m.onnx"), "may_hand_over": True, **item}
        asked = ValidationItem(str(path), **given)
        run = ValidationRun(CONDITIONS, asked, read_manifest(path), folder / "proof", "")
        return ResultChoice(run, lambda: 0.0)

    def chosen(
        self, monkeypatch: pytest.MonkeyPatch, choice: ResultChoice, winners: tuple[int, ...]
    ) -> tuple[int, ...] | None:
        monkeypatch.setattr(result_choice, "winning_regions", lambda *_: winners)
        return choice.choose_regions()

    def test_it_goes_on_with_those_that_win(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        choice = self.choice_of(tmp_path)
        assert self.chosen(monkeypatch, choice, (1,)) == (1,)
        assert len(HybridPackage.open(choice.run.item.tuned).regions) == 1
        assert (tmp_path / "m.kt.unproven").exists()

    def test_if_none_wins_it_goes_on_with_what_is_published_then(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        choice = self.choice_of(tmp_path)
        assert self.chosen(monkeypatch, choice, ()) == ()
        about = read_manifest(choice.run.item.tuned).hybrid
        assert about is not None
        assert about.nodes == {"all nodes": "onnxruntime is at least as fast here"}

    def test_if_all_win_nothing_changes(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        choice = self.choice_of(tmp_path)
        assert self.chosen(monkeypatch, choice, (0, 1, 2)) is None
        assert choice.run.item.tuned == str(tmp_path / "m.kt.unproven")

    @pytest.mark.parametrize("item", [{"may_hand_over": False}, {"compare": ("torch",)}, {"timed": False}])
    def test_nothing_is_chosen_where_onnxruntime_is_not_timed_or_not_allowed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, item: dict[str, object]
    ) -> None:
        choice = self.choice_of(tmp_path, **item)
        assert self.chosen(monkeypatch, choice, (1,)) is None
        assert not choice.should_hand_over({"tuned": (2.0,), "onnxruntime": (1.0,)})

    def test_a_network_of_regions_that_does_not_win_is_handed_over(self, tmp_path: Path) -> None:
        choice = self.choice_of(tmp_path)
        assert choice.should_hand_over({"tuned": (2.0,), "onnxruntime": (1.0,)})
        assert choice.should_hand_over({"tuned": (0.99,), "onnxruntime": (1.0,)})
        assert not choice.should_hand_over({"tuned": (0.97,), "onnxruntime": (1.0,)})
        assert not choice.should_hand_over({"tuned": (2.0,)})
        assert choice.hand_over_all()
        assert HybridPackage.open(choice.run.item.tuned).regions == ()
        assert not choice.should_hand_over({"tuned": (2.0,), "onnxruntime": (1.0,)})

    def test_a_model_that_cannot_be_read_stays_as_it_is(self, tmp_path: Path) -> None:
        choice = self.choice_of(tmp_path, onnx=str(tmp_path / "gone.onnx"))
        assert not choice.hand_over_all()
        assert "gone.onnx" in choice.run.skipped["all in onnxruntime"]
        assert choice.run.item.tuned == str(tmp_path / "m.kt.unproven")


class Turns:
    """A process whose runs take so many milliseconds."""

    def __init__(self, name: str, run_ms: float) -> None:
        self.name, self.run_ms, self.taken = name, run_ms, 0

    def turn(self, turn: BaselineTurn, seconds: float) -> tuple[float, ...]:
        self.taken += 1
        if self.run_ms < 0:
            raise EngineError("it died")
        return (self.run_ms,) * turn.runs


class TestLookingAgain:
    """A whole network that seems slower than onnxruntime in rounds that contradict each other is timed for longer."""

    ROUNDS: ClassVar = {"tuned": (1.1, 1.1, 1.1, 0.8, 0.8), "onnxruntime": (1.0,) * 5, "openvino": (1.0,) * 5}
    FIRST: ClassVar = InterleavedTimes(ROUNDS, {}, ROUNDS)

    @pytest.fixture
    def choice(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ResultChoice:
        monkeypatch.setattr(ResultChoice, "_is_whole", True)
        return TestChoosingRegions().choice_of(tmp_path)

    @pytest.mark.parametrize(("run_ms", "slower"), [(0.9, False), (1.1, True)])
    def test_all_rounds_decide(self, choice: ResultChoice, run_ms: float, *, slower: bool) -> None:
        assert choice.should_hand_over(self.ROUNDS)
        running = [Turns("tuned", run_ms), Turns("untuned", 9.0), Turns("onnxruntime", 1.0), Turns("openvino", 1.0)]
        found = choice.look_again(self.FIRST, running)
        assert [process.taken for process in running] == [60, 0, 60, 0]
        assert found.rounds_ms["tuned"] == (*self.ROUNDS["tuned"], *(run_ms,) * 60)
        assert found.latency_ms["tuned"] == (*self.ROUNDS["tuned"], *(run_ms,) * 120), "the report has all runs"
        assert found.latency_ms["openvino"] == self.ROUNDS["openvino"]
        assert choice.should_hand_over(found.rounds_ms) == slower

    @pytest.mark.parametrize(
        "ours", [(0.7, 0.72, 0.75, 0.7, 0.7), (1.0, 1.01, 0.99, 1.0, 1.0), (1.4, 1.3, 1.4, 1.5, 1.4)]
    )
    def test_where_rounds_carry_what_is_said_nothing_is_timed(
        self, choice: ResultChoice, ours: tuple[float, ...]
    ) -> None:
        running = [Turns("tuned", 1.0), Turns("onnxruntime", 1.0)]
        rounds = {**self.ROUNDS, "tuned": ours}
        first = InterleavedTimes(rounds, {}, rounds)
        assert choice.look_again(first, running) == first
        assert running[0].taken == 0

    @pytest.mark.parametrize("ours", [(0.9, 0.9, 1.1, 1.1, 0.9), (0.7, 0.95, 0.8, 0.5, 0.9)])
    def test_a_gain_that_is_smaller_than_its_spread_is_timed_again(
        self, choice: ResultChoice, ours: tuple[float, ...]
    ) -> None:
        running = [Turns("tuned", 0.8), Turns("onnxruntime", 1.0), Turns("openvino", 1.0)]
        rounds = {**self.ROUNDS, "tuned": ours}
        found = choice.look_again(InterleavedTimes(rounds, {}, rounds), running)
        assert len(found.rounds_ms["tuned"]) == 65
        choice.should_hand_over({**found.rounds_ms, "onnxruntime": self.ROUNDS["onnxruntime"]})  # another one had them
        assert running[2].taken == 0

    def test_what_would_be_handed_over_in_doubt_is_timed_again_however_fast_another_is(
        self, choice: ResultChoice
    ) -> None:
        running = [Turns("tuned", 0.9), Turns("onnxruntime", 1.0), Turns("openvino", 0.1)]
        rounds = {**self.ROUNDS, "openvino": (0.1,) * 5}
        choice.look_again(InterleavedTimes(rounds, {}, rounds), running)
        assert [process.taken for process in running] == [60, 60, 0]

    def test_further_rounds_take_no_longer_than_the_first(self, choice: ResultChoice) -> None:
        seconds = iter(range(1000))
        choice._clock = lambda: float(next(seconds))
        running = [Turns("tuned", 0.9), Turns("onnxruntime", 1.0)]
        choice.look_again(self.FIRST, running, 4.0)
        assert 3 <= running[0].taken <= 6

    def test_if_one_ends_the_first_rounds_decide(self, choice: ResultChoice) -> None:
        running = [Turns("tuned", -1.0), Turns("onnxruntime", 1.0)]
        assert choice.look_again(self.FIRST, running) == self.FIRST


class Process(Turns):
    """A process whose calls 0 and 2 are fastest on one thread, or which cannot time them."""

    def __init__(self, name: str, run_ms: float, one_us: float = 1.0, context: BaselineContext | None = None) -> None:
        super().__init__(name, run_ms)
        self.one_us, self.context, self.is_prepared = one_us, context, False

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.is_prepared = False

    def prepare(self, seconds: float) -> None:
        assert seconds == CONDITIONS.prepare_seconds
        self.is_prepared = True

    def profile(self, turn: ProfileTurn, seconds: float) -> dict[int, float]:
        assert self.is_prepared
        if self.one_us < 0:
            raise EngineError("it died")
        one_us = {0: self.one_us, 1: 4.0, 2: self.one_us}
        return one_us if turn.threads == 1 else dict.fromkeys(one_us, 2.0)


class Fake:
    """A run of a network of two regions on two cores; the milliseconds of a file are those of its name, or else 1."""

    def __init__(self, directory: Path, ms: dict[str, float], **changed: Any) -> None:
        self.directory, self._ms = directory, ms
        self.conditions, self.cores, self.number = ValidationContext(threads=2), (0, 1), 0
        self.runs_plans_here, self.one_us, self.skipped = True, 1.0, dict[str, str]()
        self.manifest = SimpleNamespace(hybrid=None, combinations=((),))
        self.item = ValidationItem("plain.kt", onnx="m.onnx", **{"timed": True, **changed.pop("item", {})})
        vars(self).update(changed)

    def process(self, name: str, label: str | None = None) -> Process:
        return Process(label or name, self._ms.get(Path(self.item.tuned).name, 1.0), self.one_us)


def choice_with(run: Fake) -> ResultChoice:
    return ResultChoice(cast(Any, run), lambda: 0.0)


NOTHING_TO_CHOOSE: list[dict[str, Any]] = [
    {"conditions": ValidationContext(threads=1)},
    {"cores": (0,)},
    {"item": {"timed": False}},
    {"one_us": -1.0},  # it cannot be timed
    {"one_us": 3.0},  # all are faster on all threads
]


class TestChoosingThreads:
    @pytest.fixture
    def written(self, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
        written: list[Any] = []
        monkeypatch.setattr(result_choice, "write_with_thread_counts", lambda *given: written.append(given))
        return written

    @pytest.mark.parametrize("number", [0, 2])
    @pytest.mark.parametrize(("ms", "counts"), [(0.9, {0: 1, 2: 1}), (1.3, {})])
    def test_it_goes_on_with_them_if_that_is_faster(
        self, tmp_path: Path, written: list[Any], ms: float, counts: dict[int, int], number: int
    ) -> None:
        """Those of the combination of shapes that is validated."""
        run = Fake(tmp_path, {"threads.kt": ms}, number=number)
        assert choice_with(run).choose_threads() == counts
        file = tmp_path / "threads.kt"
        assert written == [("plain.kt", file, ({},) * number + ({0: 1, 2: 1},))]
        assert run.item.tuned == (str(file) if counts else "plain.kt")

    @pytest.mark.parametrize(
        "changed", [*NOTHING_TO_CHOOSE, {"runs_plans_here": False}, {"manifest": SimpleNamespace(hybrid=True)}], ids=str
    )
    def test_there_may_be_nothing_to_choose(self, tmp_path: Path, written: list[Any], changed: dict[str, Any]) -> None:
        run = Fake(tmp_path, {"threads.kt": 0.5}, **changed)
        assert choice_with(run).choose_threads() == {}
        assert (written, run.item.tuned) == ([], "plain.kt")


class TestChoosingThreadsOfRegions:
    @pytest.fixture
    def limited(self, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
        """The calls of `limit_region_threads`."""
        regions = (SimpleNamespace(name="a"), SimpleNamespace(name="b"))
        hybrid = SimpleNamespace(hybrid=SimpleNamespace(regions=regions))
        limited: list[Any] = []
        monkeypatch.setattr(
            result_choice,
            "read_manifest",
            lambda path: hybrid if str(path) == "plain.kt" else SimpleNamespace(inputs=(Path(path).read_text(),)),
        )
        package = SimpleNamespace(region=lambda number: b"region %d" % number)
        monkeypatch.setattr(result_choice, "HybridPackage", SimpleNamespace(open=lambda _: package))
        monkeypatch.setattr(result_choice, "limit_region_threads", lambda *given: limited.append(given))
        return limited

    def started(self, monkeypatch: pytest.MonkeyPatch, one_us: float) -> list[Process]:
        """The processes of regions: calls of the second one are faster on all threads."""
        started: list[Process] = []

        def start(name: str, context: BaselineContext) -> Process:
            started.append(Process(name, 1.0, one_us if name == "a" else 3.0, context))
            return started[-1]

        monkeypatch.setattr(result_choice, "BaselineProcess", start)
        return started

    @pytest.mark.parametrize(("ms", "is_kept"), [(0.9, True), (1.3, False)])
    def test_each_region_is_timed_by_itself(
        self, tmp_path: Path, limited: list[Any], monkeypatch: pytest.MonkeyPatch, ms: float, is_kept: bool
    ) -> None:
        started = self.started(monkeypatch, 1.0)
        run = Fake(tmp_path, {"threads of regions.kt": ms})
        found = choice_with(run).choose_region_threads()
        assert found == (({0: 1, 2: 1}, {}) if is_kept else ())
        file = tmp_path / "threads of regions.kt"
        assert limited == [(Path("plain.kt"), [{0: 1, 2: 1}, {}], file)]
        assert run.item.tuned == (str(file) if is_kept else "plain.kt")
        assert [each.name for each in started] == ["a", "b"]
        contexts = [each.context for each in started if each.context is not None]
        assert [(each.tensors, each.threads, each.cores, each.seed) for each in contexts] == [
            ((f"region {number}",), 2, (0, 1), run.item.seed) for number in (0, 1)
        ]
        assert [each.subject.executable for each in contexts] == [
            str(tmp_path / f"threads of region{number}.kt") for number in (0, 1)
        ]

    @pytest.mark.parametrize(
        "changed", [*NOTHING_TO_CHOOSE, {"manifest": SimpleNamespace(combinations=((), ()))}], ids=str
    )
    def test_there_may_be_nothing_to_choose(
        self, tmp_path: Path, limited: list[Any], monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any]
    ) -> None:
        started = self.started(monkeypatch, changed.get("one_us", 1.0))
        run = Fake(tmp_path, {"threads of regions.kt": 0.5}, **changed)
        assert choice_with(run).choose_region_threads() == ()
        assert (limited, run.item.tuned) == ([], "plain.kt")
        assert bool(started) == ("one_us" in changed)

    @pytest.mark.parametrize("hybrid", [None, SimpleNamespace(regions=())])
    def test_a_result_without_regions_has_none(
        self, tmp_path: Path, limited: list[Any], monkeypatch: pytest.MonkeyPatch, hybrid: Any
    ) -> None:
        monkeypatch.setattr(result_choice, "read_manifest", lambda _: SimpleNamespace(hybrid=hybrid))
        assert choice_with(Fake(tmp_path, {})).choose_region_threads() == ()
        assert not limited


class TestChoosingOfTwo:
    """Two regions are enough to choose from."""

    @pytest.mark.parametrize(("regions", "chosen"), [(0, None), (1, None), (2, (1,)), (None, None)])
    def test_which_regions_are_kept(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, regions: int | None, chosen: tuple[int, ...] | None
    ) -> None:
        kept: list[Any] = []
        monkeypatch.setattr(result_choice, "winning_regions", lambda *_: (1,))
        monkeypatch.setattr(result_choice, "keep_regions", lambda *given: kept.append(given))
        hybrid = None if regions is None else SimpleNamespace(regions=(None,) * regions)
        item = {"may_hand_over": True, "compare": ("onnxruntime",)}
        run = Fake(tmp_path, {}, manifest=SimpleNamespace(hybrid=hybrid), item=item)
        assert choice_with(run).choose_regions() == chosen
        file = tmp_path / "regions.kt"
        assert kept == ([(Path("plain.kt"), (1,), file, Path("m.onnx"), run.item.constants)] if chosen else [])


class TestHandingOver:
    @pytest.mark.parametrize(
        ("ms", "combinations", "is_fixed"), [(0.9, 1, True), (0.97, 1, True), (0.99, 1, False), (0.9, 2, False)]
    )
    def test_extents_are_fixed_where_that_gains(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ms: float, combinations: int, is_fixed: bool
    ) -> None:
        """By two percent, and where there is one combination of shapes."""
        made: list[Any] = []
        monkeypatch.setattr(result_choice, "hand_over_all", lambda *given, fixed: made.append((*given, fixed)))
        plain, fixed = (tmp_path / f"onnxruntime{name}.kt" for name in ("", " fixed"))
        run = Fake(tmp_path, {fixed.name: ms}, manifest=SimpleNamespace(combinations=((),) * combinations, hybrid=None))
        choice = choice_with(run)
        assert choice.hand_over_all()
        source = Path("plain.kt"), Path("m.onnx"), run.item.constants
        assert made == [(*source, plain, False), (*source, fixed, True)]
        assert choice.is_fixed == is_fixed
        assert run.item.tuned == str(fixed if is_fixed else plain)

    def test_a_network_that_stops_is_not_gone_on_with(self, tmp_path: Path) -> None:
        run = Fake(tmp_path, {"changed.kt": -1.0})
        assert not choice_with(run)._go_on_if_faster(tmp_path / "changed.kt")
        assert run.item.tuned == "plain.kt"

    def test_what_cannot_be_handed_over_stays(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object, fixed: bool) -> None:
            raise InputError("no such file")

        monkeypatch.setattr(result_choice, "hand_over_all", refuse)
        run = Fake(tmp_path, {})
        assert not choice_with(run).hand_over_all()
        assert run.skipped == {"all in onnxruntime": "no such file"}
        assert run.item.tuned == "plain.kt"
