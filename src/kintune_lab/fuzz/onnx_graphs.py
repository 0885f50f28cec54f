"""ONNX graphs as subjects."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx

from kintune.models.onnx_nodes import describe_node, used_tensors
from kintune_lab.fuzz.comparing import difference
from kintune_lab.fuzz.evaluation import Evaluator, Refused
from kintune_lab.fuzz.graph import DrawnGraph, as_case
from kintune_lab.fuzz.input_sets import input_sets, noisy_values
from kintune_lab.fuzz.known import deviates_from_expected
from kintune_lab.fuzz.schemas import draw_graph
from kintune_lab.fuzz.subject import ModelPart, Values
from kintune_lab.fuzz.values import Array

__all__ = ["OnnxGraphs"]


class OnnxGraphs:
    """The graphs of a seed; see `Subject`."""

    def __init__(self, seed: int, *, quantised: bool = False) -> None:
        self._seed = seed
        self._quantised = quantised
        self._number = -1
        self._drawn = DrawnGraph(0)
        self._evaluator = Evaluator(0)

    def draw(self, number: int) -> None:
        """As `Subject.draw`."""
        self._drawn = draw_graph(self._seed, number, quantised=self._quantised)
        self._evaluator = Evaluator(self._drawn.opset)
        self._number = number

    @property
    def operators(self) -> Sequence[str]:
        """As `Subject.operators`."""
        return [f"{node.domain}.{node.op_type}".lstrip(".") for node in self._drawn.nodes]

    @property
    def version(self) -> int:
        """As `Subject.version`."""
        return self._drawn.opset

    @property
    def disputed(self) -> Sequence[str]:
        """As `Subject.disputed`."""
        return self._drawn.disputed

    def sets(self, wanted: int) -> list[Values]:
        """As `Subject.sets`."""
        return list(input_sets(self._drawn, self._evaluator, (self._seed, self._number, 1), wanted))

    def part(self, kept: Sequence[int]) -> ModelPart:
        """As `Subject.part`."""
        case = as_case(self._drawn, kept)
        tensors = {name for node in case.nodes for name in (*used_tensors(node), *node.output) if name}
        return ModelPart(case.inputs, case.outputs, frozenset(tensors), case)

    def write(self, part: ModelPart, folder: Path) -> Path:
        """As `Subject.write`."""
        path = folder / "model.onnx"
        onnx.save(part.content.model, path)
        return path

    def noisy(self, part: ModelPart, values: Values, seed: int) -> Values | None:
        """As `Subject.noisy`."""
        return noisy_values(part.content, self._evaluator, values, seed)

    def is_second_reference(self, part: ModelPart, values: Values, outputs: Mapping[str, Array]) -> bool:
        """As `Subject.is_second_reference`."""
        made = {name for node in part.content.nodes for name in node.output}
        found = {name: value for name, value in values.items() if name not in made}
        for node in part.content.nodes:
            with contextlib.suppress(Refused):
                found |= self._evaluator.reference(node, found) or self._evaluator.run(node, found)
        return not any(name not in found or difference(value, found[name]) for name, value in outputs.items())

    def is_overruled(self, part: ModelPart, values: Values) -> bool:
        """As `Subject.is_overruled`."""
        return any(deviates_from_expected(self._evaluator, node, values) for node in part.content.nodes)

    def described(self, part: ModelPart) -> Sequence[str]:
        """As `Subject.described`."""
        return [describe_node(node) for node in part.content.nodes]

    def listing(self, part: ModelPart) -> str:
        """As `Subject.listing`."""
        return "\n".join(onnx.printer.to_text(node) for node in part.content.nodes)
