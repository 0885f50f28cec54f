"""What is drawn, tried and reduced: an ONNX graph or a PyTorch program, behind one interface."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from kintune_lab.fuzz.evaluation import Value
from kintune_lab.fuzz.values import Array

__all__ = ["FuzzSubject", "ModelPart", "Values"]

Values = Mapping[str, Value]


@dataclass(frozen=True)
class ModelPart:
    """Some nodes of a model as a model of its own; `tensors` has the names of all its tensors.

    What it reads and nodes outside of it compute is an input, or a constant.  `shapes` has those of inputs with open
    extents, as `parse_ref` takes them.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    tensors: frozenset[str]
    content: Any
    shapes: tuple[str, ...] = ()


class FuzzSubject(Protocol):
    """Draws models; the one drawn last is what the other members are about."""

    def draw(self, number: int) -> None:
        """Draw model `number`."""

    @property
    def operators(self) -> Sequence[str]:
        """The operators of its nodes, in order."""

    @property
    def version(self) -> int:
        """The version of its operator set."""

    @property
    def disputed(self) -> Sequence[str]:
        """What its references differ about."""

    def sets(self, wanted: int) -> list[Values]:
        """The values of all tensors for several sets of inputs."""

    def part(self, kept: Sequence[int]) -> ModelPart:
        """Some of its nodes.

        Raises:
            Refused: they make no model.
        """

    def write(self, part: ModelPart, folder: Path) -> Path:
        """Write a part as a file that can be compiled.

        Raises:
            Refused: it cannot be written.
        """

    def noisy(self, part: ModelPart, values: Values, seed: int) -> Values | None:
        """The values of a part with noise in the last place of each tensor; None where a reference fails."""

    def is_second_reference(self, part: ModelPart, values: Values, outputs: Mapping[str, Array]) -> bool:
        """Whether outputs are those of a second reference."""

    def is_overruled(self, part: ModelPart, values: Values) -> bool:
        """Whether onnxruntime computes another result of a node than is expected."""

    def described(self, part: ModelPart) -> Sequence[str]:
        """The nodes of a part as a job names them."""

    def listing(self, part: ModelPart) -> str:
        """The nodes of a part in words."""
