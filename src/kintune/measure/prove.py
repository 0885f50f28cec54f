"""The proof of a tuned network: that it computes what the model computes, and how fast it is beside others.

Runs in the device worker, which stays idle meanwhile; every contender is a process of its own.  See
docs/design/proof.md.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from kintune.errors import EngineError, NumericsError
from kintune.graph.inputs import Array, arrange_inputs, draw_inputs, load_inputs
from kintune.graph.package import Manifest, read_manifest
from kintune.job.payloads import Proof
from kintune.measure.contender import Contender
from kintune.measure.contest import Contest, Turn
from kintune.measure.cores import choose_cores
from kintune.measure.cuda.gpus import is_gpu
from kintune.measure.numerics import Difference, compare_outputs
from kintune.measure.prove_request import ProveContext, ProveItem
from kintune.measure.race import QUICK_SECONDS, TURN_SECONDS, WARM_SECONDS, race
from kintune.measure.rivals import KINTUNE, Subject
from kintune.wire.depot import locate

__all__ = ["TUNED", "UNTUNED", "prove", "prove_executable"]

TUNED, UNTUNED = "tuned", "untuned"
"""Our own two contenders, as `Proof` names them."""

_REFERENCES = (UNTUNED, "onnxruntime", "torch")
"""Whose outputs the tuned ones are compared with, where they run."""

_ON_CPU = "runs on the CPU here: its numbers are compared, its speed is not"

_ONCE = Turn(runs=1, seconds=0.0)


def prove(context: bytes, payload: bytes, board: str = "") -> bytes:
    """Answer one item of a PROVE stage: an encoded `ProveContext` and `ProveItem` to an encoded `Proof`.

    With a `board`, the address of an RPC server, the network runs there.

    Raises InputError when a file cannot be used, and NumericsError when the tuned network does not run at all.
    """
    conditions = msgspec.msgpack.decode(context, type=ProveContext)
    item = msgspec.msgpack.decode(payload, type=ProveItem)
    return msgspec.msgpack.encode(prove_executable(conditions, _located(item), board=board))


def prove_executable(
    conditions: ProveContext, item: ProveItem, clock: Callable[[], float] = time.monotonic, board: str = ""
) -> Proof:
    """Prove one executable; raises as `prove` does.  A rival that fails is recorded in `skipped` and ends nothing."""
    manifest = read_manifest(item.tuned)
    values = draw_inputs(manifest.inputs, item.seed) if item.inputs is None else load_inputs(item.inputs)
    arrange_inputs(manifest.inputs, [values])
    with tempfile.TemporaryDirectory(prefix="kintune-proof-") as directory, ExitStack() as contenders:
        trial = _Trial(conditions, item, manifest, Path(directory), board)
        latency = trial.run_untuned()
        tuned = trial.enter(TUNED, contenders)
        if tuned is None:
            raise NumericsError(f"the tuned network does not run: {trial.skipped[TUNED]}")
        ours = [tuned]
        if not board and latency and latency[UNTUNED][0] < QUICK_SECONDS * 1e3:
            latency = {}
            if (untuned := trial.enter(UNTUNED, contenders)) is not None:
                ours.append(untuned)
        rivals = [rival for name in item.compare if (rival := trial.enter(name, contenders)) is not None]
        difference, compared = trial.compare()
        if board or is_gpu(manifest.target):
            rivals = trial.dismiss(rivals, _ON_CPU)
        raced = race([*ours, *rivals], conditions, clock)
    if TUNED in raced.dropped:
        raise NumericsError(f"the tuned network stopped running: {raced.dropped[TUNED]}")
    return Proof(
        latency_ms={**latency, **raced.latency_ms},
        max_abs_error=difference.absolute if compared else None,
        max_rel_error=difference.relative if compared else None,
        within_tolerance=not difference.disagreement if compared else None,
        compared_with=compared,
        skipped={**trial.skipped, **raced.dropped},
        disagreement=difference.disagreement,
    )


def _located(item: ProveItem) -> ProveItem:
    """The same with the files where this process finds them."""

    def found(path: str | None) -> str | None:
        return None if path is None else locate(path)

    return msgspec.structs.replace(
        item,
        tuned=locate(item.tuned),
        untuned=found(item.untuned),
        onnx=found(item.onnx),
        exported=found(item.exported),
        inputs=found(item.inputs),
    )


class _Trial:
    """One proof under way: who has run, what came out, who could not."""

    def __init__(
        self, conditions: ProveContext, item: ProveItem, manifest: Manifest, directory: Path, board: str
    ) -> None:
        self._conditions = conditions
        self._item = item
        self._manifest = manifest
        self._directory = directory
        self._board = board
        self._cores = choose_cores(1 if board else conditions.threads)  # a board has others
        self.skipped: dict[str, str] = {}

    def run_untuned(self) -> dict[str, tuple[float, ...]]:
        """The untuned network's latency in one run, on a board in more if quick; its process is gone afterwards."""
        if self._item.untuned is None:
            return {}
        seconds = self._conditions.untuned_seconds
        with self._contender(UNTUNED) as contender:
            try:
                contender.prepare(seconds)
                times = contender.turn(msgspec.structs.replace(_ONCE, outputs=self._outputs_of(UNTUNED)), seconds)
                if self._board and times[0] < QUICK_SECONDS * 1e3:
                    times = contender.turn(Turn(self._conditions.runs, TURN_SECONDS, WARM_SECONDS), seconds)
            except EngineError as error:
                self.skipped[UNTUNED] = str(error)
                return {}
        return {UNTUNED: times}

    def enter(self, name: str, contenders: ExitStack) -> Contender | None:
        """A contender that is prepared and has run once; None, with the reason in `skipped`, when it cannot."""
        contender = contenders.enter_context(self._contender(name))
        seconds = self._conditions.prepare_seconds
        try:
            contender.prepare(seconds)
            contender.turn(msgspec.structs.replace(_ONCE, outputs=self._outputs_of(name)), seconds)
        except EngineError as error:
            self.skipped[name] = str(error)
            contender.close()
            return None
        return contender

    def dismiss(self, rivals: Sequence[Contender], why: str) -> list[Contender]:
        """Let go of these, who have run once and need not race; returns who is left, which is nobody."""
        for rival in rivals:
            self.skipped[rival.name] = why
            rival.close()
        return []

    def compare(self) -> tuple[Difference, tuple[str, ...]]:
        """The tuned outputs' largest difference from any reference that ran, and which ran."""
        names = [tensor.name for tensor in self._manifest.outputs]
        tuned = self._outputs(TUNED)
        worst, compared = Difference(0.0, 0.0, ""), []
        for reference in _REFERENCES:
            if not Path(self._outputs_of(reference)).exists():
                continue
            found = compare_outputs(
                names, tuned, self._outputs(reference), self._conditions.rtol, self._conditions.atol
            )
            disagreement = found.disagreement and f"{found.disagreement} ({reference})"
            worst = Difference(
                max(worst.absolute, found.absolute),
                max(worst.relative, found.relative),
                worst.disagreement or disagreement,
            )
            compared.append(reference)
        return worst, tuple(compared)

    def _contender(self, name: str) -> Contender:
        ours = {TUNED: self._item.tuned, UNTUNED: self._item.untuned}
        subject = (
            Subject(executable=ours[name])
            if name in ours
            else Subject(onnx=self._item.onnx, exported=self._item.exported)
        )
        contest = Contest(
            rival=KINTUNE if name in ours else name,
            subject=subject,
            tensors=self._manifest.inputs,
            inputs=self._item.inputs,
            seed=self._item.seed,
            threads=self._conditions.threads if name in ours else len(self._cores),
            cores=self._cores,
            board=self._board if name in ours else "",
        )
        return Contender(name, contest)

    def _outputs_of(self, name: str) -> str:
        return str(self._directory / f"{name}.npz")

    def _outputs(self, name: str) -> list[Array]:
        return list(load_inputs(self._outputs_of(name)).values())
