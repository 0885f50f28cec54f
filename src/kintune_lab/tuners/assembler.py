"""Compiles whole networks with given programs: `python -m kintune_lab.tuners.assembler --fd N`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from kintune.compiler.graph.executable import build_executable, describe_build
from kintune.compiler.space.replay import Replayer
from kintune.core.candidate import UNTUNED, Candidate, Sketch
from kintune.errors import BuildError, OrderError, WireError
from kintune.wire import worker_loop as worker
from kintune_lab.tuners.messages import ASSEMBLER, AssembleNetwork, AssemblyContext, AssemblyRequest, ReplayPrograms
from kintune_lab.tuners.setup import SharedSetup, prepare_setup, structural_hash

__all__ = ["AssemblerHandler", "main"]

_ORDERS: msgspec.msgpack.Decoder[AssemblyRequest] = msgspec.msgpack.Decoder(AssemblyRequest)


class AssemblerHandler:
    """Handles an `AssemblyContext`, and then `AssemblyRequest`s."""

    def __init__(self) -> None:
        self._ingredients: AssemblyContext | None = None
        self._setup: SharedSetup | None = None

    def begin(self, kind: str, context: bytes) -> None:
        """Import and lower the network; `context` is an encoded `AssemblyContext`."""
        if kind != ASSEMBLER:
            raise WireError(f"an assembler was asked for a stage of kind {kind!r}")
        self._ingredients = msgspec.msgpack.decode(context, type=AssemblyContext)
        self._setup = prepare_setup(self._ingredients.model, self._ingredients.threads)

    def item(self, payload: bytes) -> bytes:
        """Answer one request.

        Raises:
            BuildError: the network cannot be compiled.
        """
        ingredients, setup = self._ingredients, self._setup
        if ingredients is None or setup is None:
            raise OrderError("an assembler was given an order before it was told the network")
        sketches = {sketch.digest: sketch for sketch in ingredients.sketches}
        match _ORDERS.decode(payload):
            case AssembleNetwork() as order:
                _assemble(setup, sketches, order)
                return b""
            case ReplayPrograms(programs=programs):
                return msgspec.msgpack.encode(_replay(setup, sketches, programs))


def main(argv: Sequence[str] | None = None) -> None:
    """Serve until the race closes the channel."""
    worker.main(ASSEMBLER, lambda _arguments: (b"", AssemblerHandler()), argv)


def _assemble(setup: SharedSetup, sketches: Mapping[str, Sketch], order: AssembleNetwork) -> None:
    chosen = {c.workload: (sketches[c.sketch], c) for c in order.programs if c.sketch != UNTUNED}
    manifest = describe_build(
        model_name=setup.model.name,
        model_digest=setup.model.digest,
        target=setup.canonical,
        threads=setup.threads,
        inputs=setup.model.inputs,
        outputs=setup.model.outputs,
        checks=setup.model.checks,
        chosen={workload: candidate.digest for workload, (_, candidate) in chosen.items()},
        sketches=[sketch for sketch, _ in chosen.values()],
    )
    build_executable(setup.lowered, chosen, setup.target, manifest).save(order.path)


def _replay(setup: SharedSetup, sketches: Mapping[str, Sketch], programs: Sequence[Candidate]) -> list[str]:
    modules = {w.digest: w.module for w in setup.lowered.workloads}
    replayers: dict[str, Replayer] = {}
    structures: list[str] = []
    for candidate in programs:
        if candidate.sketch == UNTUNED:
            structures.append(structural_hash(modules[candidate.workload]))
            continue
        if candidate.workload not in replayers:
            replayers[candidate.workload] = Replayer(modules[candidate.workload], setup.target)
        try:
            replayed = replayers[candidate.workload](sketches[candidate.sketch], candidate)
            structures.append(structural_hash(replayed.schedule.mod))
        except BuildError:
            structures.append("")
    return structures


if __name__ == "__main__":
    main()
