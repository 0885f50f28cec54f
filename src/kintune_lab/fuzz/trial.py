"""Compiles a drawn graph and compares its outputs with those that it must have, in this process."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
import onnx

from kintune.errors import KintuneError, cause_line
from kintune.models.importer import load
from kintune.models.onnx_nodes import used_tensors
from kintune.models.ref import parse_ref
from kintune.runtime.inputs import write_arrays
from kintune_lab.fuzz.comparing import UNDECIDED, difference
from kintune_lab.fuzz.compiling import Compiler
from kintune_lab.fuzz.evaluation import Evaluator, Refused, Value
from kintune_lab.fuzz.graph import Case, DrawnGraph, as_case
from kintune_lab.fuzz.input_sets import input_sets, noisy_values
from kintune_lab.fuzz.schemas import draw_graph
from kintune_lab.fuzz.values import Array, is_large
from kintune_lab.fuzz.verdict import Kind, Verdict

__all__ = ["DRAWN", "REFERRED", "Trial"]

DRAWN, REFERRED = "drawn", "computed by the references"
"""What has been done with a graph: a process that ends before the second did not end by our doing."""

_RULES = 6  # each so many graphs, subgraphs get the first program of their rule
_SETS = 3  # of inputs
_SAMPLES = (4, 20)  # draws of noise: a few, and more where these do not explain a difference


class Trial:
    """Tries drawn graphs of one `seed`; keeps the last one, so that parts of it are tried without drawing it again."""

    def __init__(self, seed: int, stage: Callable[[str], None] = lambda _: None) -> None:
        """`stage` is called when a graph is drawn, and when the references have computed it."""
        self._seed = seed
        self._stage = stage
        self._compiler = Compiler()
        self._number = -1
        self._drawn = DrawnGraph(0)
        self._evaluator = Evaluator(0)
        self._sets: list[Mapping[str, Value]] = []

    def try_graph(self, number: int, kept: Collection[int] | None = None) -> Verdict:
        """Try a graph, or some of its nodes; nodes that the importer refuses are left out, and the others tried."""
        begun = time.monotonic()
        self._draw(number)
        self._stage(REFERRED)
        wanted = list(range(len(self._drawn.nodes)) if kept is None else kept)
        verdict = self._try(wanted)
        refused: list[str] = []
        if verdict.kind is Kind.REFUSED and len(wanted) > 1:
            alone = [at for at in wanted if self._try([at], only_import=True).kind is not Kind.REFUSED]
            refused = [self._drawn.nodes[at].op_type for at in wanted if at not in alone]
            if alone and len(alone) < len(wanted):
                verdict = self._try(alone)
        elif verdict.kind is Kind.REFUSED:
            refused = [self._drawn.nodes[at].op_type for at in wanted]
        return msgspec.structs.replace(
            verdict,
            refused=tuple(refused),
            disputed=tuple(self._drawn.disputed),
            opset=self._drawn.opset,
            seconds=round(time.monotonic() - begun, 3),
        )

    def save(self, number: int, kept: Collection[int], folder: Path, said: str) -> None:
        """Write some nodes of a graph as `model.onnx`, its sets of inputs and what it must give as `.npz` files.

        `said` goes to `fault.txt`, with a listing of the nodes.
        """
        self._draw(number)
        case = as_case(self._drawn, kept)
        folder.mkdir(parents=True, exist_ok=True)
        onnx.save(case.model, folder / "model.onnx")
        for at, values in enumerate(self._sets):
            write_arrays(folder / f"inputs{at}.npz", {name: values[name] for name in case.inputs})
            write_arrays(folder / f"outputs{at}.npz", {name: values[name] for name in case.outputs})
        listing = "\n".join(onnx.printer.to_text(node) for node in case.nodes)
        facts = [f"{name}: {_facts(drawn)}" for name, drawn in self._drawn.values.items() if name in _named(case)]
        (folder / "fault.txt").write_text("\n".join([said, "", listing, "", "In the first set:", *facts, ""]))

    def _draw(self, number: int) -> None:
        if number == self._number:
            return
        self._drawn = draw_graph(self._seed, number)
        self._stage(DRAWN)
        self._evaluator = Evaluator(self._drawn.opset)
        self._sets = list(input_sets(self._drawn, self._evaluator, (self._seed, number, 1), _SETS))
        self._number = number

    def _try(self, kept: Sequence[int], *, only_import: bool = False) -> Verdict:
        kept = tuple(kept)
        operators = tuple(sorted({self._drawn.nodes[at].op_type for at in kept}))
        try:
            case = as_case(self._drawn, kept)
        except Refused as error:
            return Verdict(Kind.NOT_COMPARED, str(error), kept)
        with tempfile.TemporaryDirectory(prefix="kintune-fuzz-") as folder:
            path = Path(folder) / "model.onnx"
            onnx.save(case.model, path)
            try:
                model = load(parse_ref(str(path)))
            except KintuneError as error:
                return Verdict(Kind.REFUSED, str(error).replace(f"{path}: ", ""), kept)
            except Exception as error:
                return Verdict(Kind.INTERNAL, f"import: {type(error).__name__}: {cause_line(error)}", kept, operators)
            if only_import:
                return Verdict(Kind.RIGHT)
            try:
                executable = self._compiler.compile(model, rules=self._number % _RULES == 0, keep_denormals=True)
                taken = {tensor.name for tensor in executable.inputs}
                found = [
                    executable.run({name: np.asarray(values[name]) for name in case.inputs if name in taken})
                    for values in self._sets
                ]
            except Exception as error:
                return Verdict(Kind.INTERNAL, f"{type(error).__name__}: {cause_line(error)}", kept, operators)
        return self._compare(case, found, kept, operators)

    def _compare(
        self, case: Case, found: Sequence[Mapping[str, Array]], kept: tuple[int, ...], operators: tuple[str, ...]
    ) -> Verdict:
        undecided = ""
        for at, (outputs, values) in enumerate(zip(found, self._sets, strict=True)):
            if list(outputs) != list(case.outputs):
                return Verdict(Kind.WRONG, f"outputs are {list(outputs)}", kept, operators)
            read = [values[name] for name in _named(case) if name in values]
            large = any(isinstance(v, np.ndarray) and v.dtype.kind == "f" and is_large(v).any() for v in read)
            samples: list[Mapping[str, Value]] = []
            for enough in (0, *_SAMPLES):
                while len(samples) < enough:
                    noisy = noisy_values(case, self._evaluator, values, len(samples))
                    samples.append({} if noisy is None else noisy)
                given = [sample for sample in samples if sample]
                said = {
                    name: difference(value, values[name], [sample[name] for sample in given], overflows=large)
                    for name, value in outputs.items()
                }
                wrong = {name: text for name, text in said.items() if text and text != UNDECIDED}
                if not wrong:
                    break
            else:
                name, text = next(iter(wrong.items()))
                if self._agrees_with_reference(case, values, outputs):
                    reason = f"{name}: onnxruntime has another result than ONNX's reference"
                    return Verdict(Kind.NOT_COMPARED, reason, kept, operators)
                return Verdict(Kind.WRONG, f"set {at}: {name}: {text}", kept, operators)
            undecided = undecided or next((name for name, text in said.items() if text), "")
        if undecided:
            return Verdict(Kind.NOT_COMPARED, f"{undecided}: {UNDECIDED}", kept, operators)
        return Verdict(Kind.RIGHT, "", kept, operators)

    def _agrees_with_reference(self, case: Case, values: Mapping[str, Value], outputs: Mapping[str, Array]) -> bool:
        """Whether outputs are those that ONNX's reference computes, from the same inputs and in the same order."""
        made = {name for node in case.nodes for name in node.output}
        found = {name: value for name, value in values.items() if name not in made}
        for node in case.nodes:
            computed = self._evaluator.reference(node, found)
            if computed is None:
                return False
            found |= computed
        return not any(difference(value, found[name]) for name, value in outputs.items())


def _named(case: Case) -> set[str]:
    """The names of all tensors of a case."""
    return {name for node in case.nodes for name in (*used_tensors(node), *node.output)}


def _facts(value: Value) -> str:
    """What kind of values a tensor has."""
    if isinstance(value, list):
        return f"sequence of {len(value)}"
    said = f"{value.dtype}{list(value.shape)}"
    finite = value[np.isfinite(value)]
    if finite.size:
        said += f" from {finite.min()} to {finite.max()}"
    return said + (f", {value.size - finite.size} not finite" if finite.size < value.size else "")
