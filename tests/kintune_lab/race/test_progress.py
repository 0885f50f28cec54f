from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kintune_lab.experiment.experiment import CellProgress
from kintune_lab.race.progress import Pause, RaceProgress
from kintune_lab.race.turn_scheduler import TurnScheduler
from tests.support.scripted_tuner import PassingTime, ScriptedTuner, ScriptedTurn


def shown_of(stock: int, ours: Callable[[int], float], ratio: float = 1.0) -> list[CellProgress]:
    time = PassingTime()
    tuners = [
        ScriptedTuner("stock", [ScriptedTurn(10.0, (("a", i, float(100 - i)),)) for i in range(stock)], time, []),
        ScriptedTuner("kintune", [ScriptedTurn(ours(i)) for i in range(100)], time, [], ends=False),
    ]
    shown: list[CellProgress] = []
    progress = RaceProgress({"kintune": ratio}, shown.append)
    progress.watch_tuners(tuners)
    record = TurnScheduler(tuners, dict.fromkeys([s.name for s in tuners], ratio), time, lambda: 1.0).run(
        progress.turned
    )
    progress.remeasuring(record)
    progress.remeasured("judging", 0.5)
    return shown


def test_it_says_who_has_done_what() -> None:
    shown = shown_of(2, lambda _: 10.0)
    assert shown[0].phase == "importing and lowering the model"
    assert shown[1].phase == "stock 8 trials in 10 s; kintune 0 trials in 0 s"


def test_the_time_left_is_that_of_all_sides_and_of_the_judge() -> None:
    shown = shown_of(10, lambda _: 10.0)
    halfway = shown[10]
    assert halfway.done is not None
    assert 0.2 < halfway.done < 0.5
    assert halfway.seconds_left is not None
    assert 100 < halfway.seconds_left < 300
    assert shown[-1].seconds_left is not None
    assert 0 < shown[-1].seconds_left < halfway.seconds_left


def test_a_first_turn_with_one_trial_is_not_taken_for_the_pace_of_all() -> None:
    time = PassingTime()
    script = [ScriptedTurn(30.0, (("a", 0, 100.0),), trials=1), *(ScriptedTurn(60.0, trials=64) for _ in range(20))]
    tuners = [
        ScriptedTuner("stock", script, time, []),
        ScriptedTuner("kintune", [ScriptedTurn(60.0)], time, [], ends=False),
    ]
    shown: list[CellProgress] = []
    progress = RaceProgress({"kintune": 1.0}, shown.append)
    progress.watch_tuners(tuners)
    TurnScheduler(tuners, {"stock": 1.0, "kintune": 1.0}, time, lambda: 1.0).run(progress.turned)
    assert shown[1].seconds_left is not None
    assert shown[1].seconds_left < 2 * 2 * 1230.0


def test_it_never_says_that_more_than_all_is_done() -> None:
    for progress in shown_of(5, lambda i: 1.0 + i, ratio=3.0):
        assert progress.done is None or 0.0 <= progress.done <= 1.0
        assert progress.seconds_left is None or progress.seconds_left >= 0.0


class Scene:
    """The cores, what was shown, and a sleeper who removes the file after some looks."""

    def __init__(self, asked: Path, looks: int = 0) -> None:
        self.asked = asked
        self.held: list[bool] = []
        self.shown: list[CellProgress] = []
        self._looks = looks
        self.pause = Pause(asked, self._hold, self.shown.append, self._sleep)

    @contextmanager
    def _hold(self) -> Iterator[None]:
        self.held.append(True)
        yield
        self.held.append(False)

    def _sleep(self, seconds: float) -> None:
        assert seconds > 0
        assert not self.held[-1]
        self._looks -= 1
        if not self._looks:
            self.asked.unlink()


def test_nobody_waits_unasked(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "pause")
    with scene.pause as pause:
        pause.between_turns()
        assert scene.held == [True]
    assert scene.held == [True, False]
    assert scene.shown == []


def test_a_pause_frees_the_cores_and_takes_them_again(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "pause", looks=3)
    with scene.pause as pause:
        scene.asked.touch()
        pause.between_turns()
        assert scene.held == [True, False, True]
        pause.between_turns()
    assert scene.held == [True, False, True, False]
    assert len(scene.shown) == 3
    assert str(scene.asked) in scene.shown[0].phase
