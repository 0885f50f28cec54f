"""Kintune's own executables as a baseline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kintune.errors import OrderError
from kintune.runtime.inputs import Array
from kintune.validate.baselines.baseline import BaselineModel

if TYPE_CHECKING:
    from kintune.runtime.executable import Executable

__all__ = ["KintuneExecutable"]


class KintuneExecutable:
    """A `.kt` file, run as its users run it: arrays in, arrays out.  It has one arithmetic, `exact` or not."""

    _executable: Executable
    _inputs: dict[str, Array]

    def __init__(self, exact: bool = False) -> None:
        del exact

    def unavailable(self, subject: BaselineModel) -> str | None:
        """Nothing but a missing file stands in the way."""
        return None if subject.executable else "there is no executable"

    def prepare(self, subject: BaselineModel, threads: int, inputs: Mapping[str, Array]) -> None:
        """Open the file; the threads are those of the runtime, set by the environment (`TVM_NUM_THREADS`)."""
        from kintune.runtime.executable import Executable

        if subject.executable is None:
            raise OrderError("there is no executable to prepare; name its path")
        self._executable = Executable.open(subject.executable)
        self.feed(inputs)

    def feed(self, inputs: Mapping[str, Array]) -> None:
        """Keep these."""
        self._inputs = dict(inputs)

    def perturb_weights(self, seed: int) -> None:
        """Its weights stay as they are."""

    def run(self) -> list[Array]:
        """Run once."""
        return list(self._executable.run(self._inputs).values())
