"""Lets people have their machine back for a while: a race stands still between two turns while a file says so."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from types import TracebackType

from kintune_lab.experiment.experiment import CellProgress, Show

__all__ = ["Pause"]

_LOOK_S = 1.0


class Pause:
    """Holds the cores inside a `with` block, and lets go of them for as long as the file `asked` exists.

    `hold` takes the cores; `show` is told of the waiting.
    """

    def __init__(
        self,
        asked: Path,
        hold: Callable[[], AbstractContextManager[None]],
        show: Show,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._asked = asked
        self._hold = hold
        self._show = show
        self._sleep = sleep
        self._held = ExitStack()

    def __enter__(self) -> Pause:
        self._held.enter_context(self._hold())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.close()

    def between_turns(self) -> None:
        """Everybody stands still: wait here while a pause is asked for.  Whoever waits is charged nothing."""
        if not self._asked.exists():
            return
        self._held.close()
        while self._asked.exists():
            self._show(CellProgress(f"pausing until {self._asked} is removed"))
            self._sleep(_LOOK_S)
        self._held.enter_context(self._hold())
