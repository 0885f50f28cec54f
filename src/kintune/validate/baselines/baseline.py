"""The interface of the runtimes that a network is compared with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from kintune.core.model import Constant
from kintune.models.constants import constant_values
from kintune.runtime.inputs import Array

__all__ = ["Baseline", "BaselineModel"]


class BaselineModel(msgspec.Struct, frozen=True):
    """The network in its available forms: paths of a `.kt` file, an ONNX file, a PyTorch exported program.

    `quantised` is the ONNX file as it was quantised to 8 bits, for runtimes that are to run it so.
    Both ONNX files and the exported program have inputs that the executable has not: those of `constants`, whose types
    and shapes are the file's.  With `given_draws`, nodes that draw random numbers always give the same ones.
    """

    executable: str | None = None
    onnx: str | None = None
    exported: str | None = None
    constants: dict[str, Constant] = {}
    quantised: str | None = None
    given_draws: bool = False

    def feeds(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Returns the inputs of the model's own file: those of the executable, and the constants."""
        return {**inputs, **{name: constant_values(constant) for name, constant in self.constants.items()}}


class Baseline(Protocol):
    """A runtime that runs a network in fp32 with a given number of threads.

    Used in a process of its own, in this order: `unavailable`, `prepare`, then `run` any number of times.  It keeps
    its runtime's defaults except for what makes the comparison fair: fp32, the threads, one request at a time.  Made
    with `exact`, it leaves out every optimisation that changes numbers.
    """

    def unavailable(self, subject: BaselineModel) -> str | None:
        """Returns why this runtime cannot run the network here, in a few words; None when it can."""

    def prepare(self, subject: BaselineModel, threads: int, inputs: Mapping[str, Array]) -> None:
        """Loads and compiles the network for inputs of these shapes, and keeps the inputs."""

    def feed(self, inputs: Mapping[str, Array]) -> None:
        """Keeps these inputs, of the same shapes and types, for the runs that follow."""

    def perturb_weights(self, seed: int) -> None:
        """Perturbs the model's weights by a few units in the last place for good, where the runtime can."""

    def run(self) -> list[Array]:
        """Runs once on the inputs; returns the outputs in the model's order, valid until the next run."""
