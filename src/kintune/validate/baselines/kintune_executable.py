"""Kintune's own executables as a baseline."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kintune.errors import OrderError
from kintune.runtime.inputs import Array
from kintune.validate.baselines.baseline import BaselineModel
from kintune.validate.baselines.node_times import NodeTimes, summed_times

if TYPE_CHECKING:
    from kintune.runtime.opening import AnyExecutable
    from kintune_runtime.executable import KernelTime

__all__ = ["KintuneExecutable"]


class KintuneExecutable:
    """A `.kt` file, run as its users run it: arrays in, arrays out.  It has one arithmetic, `exact` or not."""

    _executable: AnyExecutable
    _threads: int
    _inputs: dict[str, Array]

    def __init__(self, exact: bool = False) -> None:
        del exact

    def unavailable(self, subject: BaselineModel) -> str | None:
        """It needs an executable."""
        return None if subject.executable else "there is no executable"

    def prepare(self, subject: BaselineModel, threads: int, inputs: Mapping[str, Array]) -> None:
        """Open the file."""
        from kintune.runtime.opening import open

        if subject.executable is None:
            raise OrderError("there is no executable to prepare; name its path")
        if subject.given_draws:
            with tempfile.TemporaryDirectory(prefix="kintune-draws-") as folder:
                self._executable = open(_with_given_draws(subject.executable, Path(folder, "given.kt")))
        else:
            self._executable = open(subject.executable)
        self._threads = threads
        self.feed(inputs)

    def feed(self, inputs: Mapping[str, Array]) -> None:
        """Keep the inputs."""
        self._inputs = dict(inputs)

    def perturb_weights(self, seed: int) -> None:
        """Does nothing: its weights stay as they are."""

    def run(self) -> list[Array]:
        """Run once."""
        return list(self._executable.run(self._inputs, threads=self._threads).values())

    def profile(self, threads: int) -> list[KernelTime]:
        """Run once; returns the time of each kernel's call.

        Raises:
            OrderError: it is an executable for a GPU, or runs partly in onnxruntime.
        """
        from kintune.runtime.executable import Executable

        if not isinstance(self._executable, Executable):
            raise OrderError("only an executable for CPUs, without onnxruntime, tells the times of its kernels")
        return self._executable.profile(self._inputs, threads=threads)

    def profile_nodes(self, runs: int, seconds: float) -> NodeTimes:
        """Times each node of the graph that onnxruntime runs, a region being one of them; about `seconds` in all.

        Raises:
            OrderError: it does not run in onnxruntime.
        """
        from kintune.runtime.hybrid_executable import HybridExecutable

        if not isinstance(self._executable, HybridExecutable):
            raise OrderError("only an executable that runs partly in onnxruntime tells the times of nodes")
        import onnxruntime

        self.run()  # untimed: memory is planned
        begun = time.perf_counter()
        self.run()
        fitting = int(seconds / max(time.perf_counter() - begun, 1e-9))
        found = self._executable.profiles(self._inputs, repeats=max(1, min(runs, fitting)), threads=self._threads)
        return NodeTimes(summed_times(found), onnxruntime.__version__)


def _with_given_draws(executable: str, path: Path) -> str | Path:
    """Writes an executable whose host graph always draws the same numbers to `path`; returns the one to open.

    That is `executable` itself where no graph draws any.
    """
    from onnx import ModelProto

    from kintune.models.given_draws import give_draws
    from kintune.runtime.hybrid_package import HybridPackage, write_hybrid
    from kintune.runtime.package import read_manifest

    if read_manifest(executable).hybrid is None:
        return executable
    package = HybridPackage.open(executable)
    host = ModelProto.FromString(package.graph)
    if not give_draws(host):
        return executable
    write_hybrid(path, package.manifest, host.SerializeToString(), [bytes(region) for region in package.regions])
    return path
