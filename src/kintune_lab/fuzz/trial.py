"""Compiles a drawn model and compares its outputs with those that it must have, in this process."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from kintune.errors import KintuneError, cause_line
from kintune.models.importer import load
from kintune.models.model import ImportedModel
from kintune.models.ref import parse_ref
from kintune.runtime.inputs import write_arrays
from kintune.runtime.opening import open as open_result
from kintune_lab.fuzz.comparing import UNDECIDED, difference
from kintune_lab.fuzz.compiling import Chosen, CompileWay
from kintune_lab.fuzz.evaluation import Refused, Value
from kintune_lab.fuzz.known import floor_of, may_lose_infinities
from kintune_lab.fuzz.subject import FuzzSubject, ModelPart, Values
from kintune_lab.fuzz.values import Array, is_large
from kintune_lab.fuzz.verdict import FAULTS, GraphVerdict, VerdictKind

__all__ = ["DRAWN", "REFERRED", "Trial"]

DRAWN, REFERRED = "drawn", "computed by the references"
"""What has been done with a model: a process that ends before the second did not end by our doing."""

_SETS = 3  # of inputs
_SHARED = 24  # each so many models, a node runs in onnxruntime, which costs as much as two models
_LONGEST = 200  # characters of a reason that are kept
_SAMPLES = (4, 20)  # draws of noise: a few, and more where these do not explain a difference


class Trial:
    """Tries the models of a subject; keeps the last one, so that parts of it are tried without drawing it again.

    Each model is compiled in each of the `ways`.  What these compute must agree with the references, and integers in
    several ways be the same bit for bit.
    """

    def __init__(
        self,
        subject: FuzzSubject,
        ways: Sequence[CompileWay],
        seed: int = 0,
        stage: Callable[[str, tuple[str, ...]], None] = lambda said, operators: None,
    ) -> None:
        """`stage` is called with what is done, and with the operators of the model."""
        self._subject = subject
        self._stage = stage
        self._ways = ways
        self._seed = seed
        self._number = -1
        self._sets: list[Values] = []

    def try_model(self, number: int, kept: Collection[int] | None = None) -> GraphVerdict:
        """Try a model, or some of its nodes; nodes that the importer refuses are left out, and the others tried."""
        begun = time.monotonic()
        self._draw(number)
        operators = self._subject.operators
        self._stage(REFERRED, tuple(operators))
        wanted = list(range(len(operators)) if kept is None else kept)
        verdict = self._try(wanted)
        refused: dict[int, str] = {}
        if verdict.kind is VerdictKind.REFUSED:
            refused = self._refused_alone(wanted)
            if 0 < len(refused) < len(wanted):
                verdict = self._try([at for at in wanted if at not in refused])
        if verdict.kind not in FAULTS and (refused or number % _SHARED == 1):
            shared = [self._try_shared(way, tuple(wanted)) for way in self._ways if way.shares]
            ran = ("onnxruntime",) if any(each.kind is VerdictKind.RIGHT for each in shared) else ()
            verdict = msgspec.structs.replace(verdict, programs=(*verdict.programs, *ran))
            verdict = next((each for each in shared if each.kind in FAULTS), verdict)
        return msgspec.structs.replace(
            verdict,
            refused=tuple(f"{operators[at]}: {reason[:_LONGEST]}" for at, reason in refused.items()),
            disputed=tuple(self._subject.disputed),
            opset=self._subject.version,
            seconds=round(time.monotonic() - begun, 3),
        )

    def save(self, number: int, kept: Collection[int], folder: Path, said: str) -> None:
        """Write some nodes of a model as a file, its sets of inputs and what it must give as `.npz` files.

        `said` goes to `fault.txt`, with a listing of the nodes.
        """
        self._draw(number)
        part = self._subject.part(list(kept))
        folder.mkdir(parents=True, exist_ok=True)
        self._subject.write(part, folder)
        for at, values in enumerate(self._sets):
            write_arrays(folder / f"inputs{at}.npz", {name: values[name] for name in part.inputs})
            write_arrays(folder / f"outputs{at}.npz", {name: values[name] for name in part.outputs})
        facts = [f"{name}: {_facts(value)}" for name, value in self._sets[0].items() if name in part.tensors]
        lines = [said, "", self._subject.listing(part), "", "In the first set:", *facts, ""]
        (folder / "fault.txt").write_text("\n".join(lines))

    def _draw(self, number: int) -> None:
        if number != self._number:
            self._subject.draw(number)
            self._stage(DRAWN, tuple(self._subject.operators))
            self._sets = self._subject.sets(_SETS)
            self._number = number

    def _refused_alone(self, nodes: Sequence[int]) -> dict[int, str]:
        """Which of some nodes that are refused together are refused alone, and why: halves are tried first."""
        found: dict[int, str] = {}
        for half in (nodes[: len(nodes) // 2], nodes[len(nodes) // 2 :]):
            verdict = self._try(half, only_import=True) if half else None
            if verdict is not None and verdict.kind is VerdictKind.REFUSED:
                found |= {half[0]: verdict.reason} if len(half) == 1 else self._refused_alone(half)
        return found

    def _try(self, kept: Sequence[int], *, only_import: bool = False) -> GraphVerdict:
        kept = tuple(kept)
        operators = tuple(sorted({self._subject.operators[at] for at in kept}))
        try:
            part = self._subject.part(kept)
        except Refused as error:
            return GraphVerdict(VerdictKind.NOT_COMPARED, str(error), kept)
        with tempfile.TemporaryDirectory(prefix="kintune-fuzz-") as folder:
            try:
                path = self._subject.write(part, Path(folder))
                ref = parse_ref(str(path), part.shapes)
                model = load(ref)
            except (KintuneError, Refused) as error:
                return GraphVerdict(VerdictKind.REFUSED, str(error).replace(f"{folder}/", ""), kept)
            except Exception as error:
                return GraphVerdict(
                    VerdictKind.INTERNAL, f"import: {type(error).__name__}: {cause_line(error)}", kept, operators
                )
            if only_import:
                return GraphVerdict(VerdictKind.RIGHT)
            found: dict[str, list[Mapping[str, Array]]] = {}
            programs: list[str] = []
            refused: list[str] = []
            for way in self._ways:
                try:
                    lowered = way.compiler.lower_as(ref, model)
                    chosen = way.choose(way.compiler, lowered, (self._seed, self._number))
                    found[way.name] = self._outputs(way, model, lowered, chosen, part)
                except Refused as error:
                    return GraphVerdict(VerdictKind.REFUSED, str(error).replace(f"{folder}/", ""), kept)
                except Exception as error:
                    said = f"{type(error).__name__}: {cause_line(error)}"
                    return GraphVerdict(VerdictKind.INTERNAL, _of(way, said), kept, operators)
                programs += chosen.titles
                refused += chosen.refused
                verdict = self._compare(part, found[way.name], kept, operators)
                if verdict.kind is VerdictKind.WRONG:
                    culprit = self._culprit(way, model, lowered, chosen, part)
                    return msgspec.structs.replace(verdict, reason=_of(way, verdict.reason + culprit))
        first, *others = found
        for name in others:
            if said := _differs(found[first], found[name]):
                return GraphVerdict(VerdictKind.WRONG, f"{name} and {first}: {said}", kept, operators)
        return msgspec.structs.replace(verdict, programs=tuple(programs), unbuilt=tuple(refused))

    def _try_shared(self, way: CompileWay, kept: tuple[int, ...]) -> GraphVerdict:
        """Try nodes of which some run in onnxruntime: those that are refused, and one more."""
        operators = tuple(sorted({self._subject.operators[at] for at in kept}))
        with tempfile.TemporaryDirectory(prefix="kintune-fuzz-") as folder:
            try:
                part = self._subject.part(kept)
                handed_over = self._subject.described(part)[self._number % len(kept) :][:1]
                path = self._subject.write(part, Path(folder))
                executable: Any = open_result(way.compiler.compile_as_job(path, handed_over=handed_over))
                with executable:
                    found = self._run(executable, part)
            except (KintuneError, Refused) as error:
                return GraphVerdict(VerdictKind.REFUSED, str(error), kept)
            except Exception as error:
                said = f"partly in onnxruntime: {type(error).__name__}: {cause_line(error)}"
                return GraphVerdict(VerdictKind.INTERNAL, said, kept, operators)
        comparable = [at for at, values in enumerate(self._sets) if not self._subject.is_overruled(part, values)]
        if not comparable:
            return GraphVerdict(VerdictKind.NOT_COMPARED, "onnxruntime computes another result than expected", kept)
        verdict = self._compare(part, found, kept, operators, comparable)
        return msgspec.structs.replace(verdict, reason=f"partly in onnxruntime: {verdict.reason}")

    def _outputs(
        self, way: CompileWay, model: ImportedModel, lowered: Any, chosen: Chosen, part: ModelPart
    ) -> list[Mapping[str, Array]]:
        """What the compiled model computes of each set."""
        return self._run(way.compiler.build(model, lowered, chosen, keep_denormals=True), part)

    def _run(self, executable: Any, part: ModelPart) -> list[Mapping[str, Array]]:
        names = _names_of([tensor.name for tensor in executable.inputs], part.inputs)
        return [executable.run({own: np.asarray(values[name]) for own, name in names.items()}) for values in self._sets]

    def _culprit(self, way: CompileWay, model: ImportedModel, lowered: Any, chosen: Chosen, part: ModelPart) -> str:
        """Describes the program that is wrong without the others; empty where none is, or default schedules are."""
        for said, alone in [("", Chosen()), *chosen.alone()]:
            with contextlib.suppress(Exception):  # what fails now is not what was wrong
                found = self._outputs(way, model, lowered, alone, part)
                if self._compare(part, found, (), tuple(self._subject.operators)).kind is VerdictKind.WRONG:
                    return said and f"; by {said}"
        return ""

    def _compare(
        self,
        part: ModelPart,
        found: Sequence[Mapping[str, Array]],
        kept: tuple[int, ...],
        operators: tuple[str, ...],
        among: Sequence[int] | None = None,
    ) -> GraphVerdict:
        """Compare what was found for all sets, or those `among` which it is to be compared."""
        undecided, floor = "", floor_of(operators)
        overflows = may_lose_infinities([self._subject.operators[at] for at in kept] or operators)
        for at, (computed, values) in enumerate(zip(found, self._sets, strict=True)):
            if among is not None and at not in among:
                continue
            if len(computed) != len(part.outputs):
                return GraphVerdict(VerdictKind.WRONG, f"outputs are {list(computed)}", kept, operators)
            outputs = dict(zip(part.outputs, computed.values(), strict=True))
            tensors = [values[name] for name in part.tensors]
            large = overflows or any(
                isinstance(v, np.ndarray) and v.dtype.kind == "f" and is_large(v).any() for v in tensors
            )
            samples: list[Values] = []
            for enough in (0, *_SAMPLES):
                while len(samples) < enough:
                    samples.append(self._subject.noisy(part, values, len(samples)) or {})
                given = [sample for sample in samples if sample]
                said = {
                    name: difference(
                        value, values[name], [sample[name] for sample in given], overflows=large, floor=floor
                    )
                    for name, value in outputs.items()
                }
                wrong = {name: text for name, text in said.items() if text and text != UNDECIDED}
                if not wrong:
                    break
            else:
                name, text = next(iter(wrong.items()))
                if self._subject.is_second_reference(part, values, outputs):
                    reason = f"{name}: the references have different results"
                    return GraphVerdict(VerdictKind.NOT_COMPARED, reason, kept, operators)
                return GraphVerdict(VerdictKind.WRONG, f"set {at}: {name}: {text}", kept, operators)
            undecided = undecided or next((name for name, text in said.items() if text), "")
        if undecided:
            return GraphVerdict(VerdictKind.NOT_COMPARED, f"{undecided}: {UNDECIDED}", kept, operators)
        return GraphVerdict(VerdictKind.RIGHT, "", kept, operators)


def _of(way: CompileWay, said: str) -> str:
    return f"{way.name}: {said}" if way.name else said


def _differs(found: Sequence[Mapping[str, Array]], other: Sequence[Mapping[str, Array]]) -> str:
    """Describes the first output that is not the same: integers bit for bit, floats as far as rounding allows."""
    for at, (one, another) in enumerate(zip(found, other, strict=True)):
        for name, value in one.items():
            if said := difference(another[name], value):
                return f"set {at}: {name}: {said}"
    return ""


def _names_of(taken: Sequence[str], inputs: Sequence[str]) -> dict[str, str]:
    """By the name of each input of an executable its name in the model; those of PyTorch's programs have others."""
    if set(taken) <= set(inputs):
        return {name: name for name in taken}
    return dict(zip(taken, inputs, strict=True))


def _facts(value: Value) -> str:
    """What kind of values a tensor has."""
    if isinstance(value, list):
        return f"sequence of {len(value)}"
    said = f"{value.dtype}{list(value.shape)}"
    finite = value[np.isfinite(value)]
    if finite.size:
        said += f" from {finite.min()} to {finite.max()}"
    return said + (f", {value.size - finite.size} not finite" if finite.size < value.size else "")
