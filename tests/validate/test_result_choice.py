from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import onnx
import pytest

from kintune.core.stage_requests import ValidationContext, ValidationItem
from kintune.errors import EngineError
from kintune.runtime.hybrid_package import HybridPackage
from kintune.runtime.manifest import read_manifest
from kintune.validate import result_choice
from kintune.validate.baseline_protocol import BaselineTurn
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

    def test_further_rounds_take_no_longer_than_the_first(self, choice: ResultChoice) -> None:
        seconds = iter(range(1000))
        choice._clock = lambda: float(next(seconds))
        running = [Turns("tuned", 0.9), Turns("onnxruntime", 1.0)]
        choice.look_again(self.FIRST, running, 4.0)
        assert 3 <= running[0].taken <= 6

    def test_if_one_ends_the_first_rounds_decide(self, choice: ResultChoice) -> None:
        running = [Turns("tuned", -1.0), Turns("onnxruntime", 1.0)]
        assert choice.look_again(self.FIRST, running) == self.FIRST
