from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kintune_lab.experiment.experiment import CellProgress
from kintune_lab.race.pause import Pause


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
