"""Compiles whole networks with given programs: `python -m kintune_lab.contest.assembler --fd N`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from kintune.compiler.graph.assemble import assemble
from kintune.compiler.space.replay import Replayer
from kintune.core.candidate import UNTUNED, Candidate, Sketch
from kintune.errors import BuildError, OrderError, WireError
from kintune.runtime.executable import Executable, describe_build
from kintune.wire import worker_loop as worker
from kintune_lab.contest.assembly import ASSEMBLER, Assemble, AssemblyOrder, Ingredients, Replay
from kintune_lab.contest.ground import ContestGround, lay_ground, structure_of

__all__ = ["AssemblerHandler", "main"]

_ORDERS: msgspec.msgpack.Decoder[AssemblyOrder] = msgspec.msgpack.Decoder(AssemblyOrder)


class AssemblerHandler:
    """An `Ingredients` to begin with, then `AssemblyOrder`s."""

    def __init__(self) -> None:
        self._ingredients: Ingredients | None = None
        self._ground: ContestGround | None = None

    def begin(self, kind: str, context: bytes) -> None:
        """Be told the network; `context` is an encoded `Ingredients`."""
        if kind != ASSEMBLER:
            raise WireError(f"an assembler was asked for a stage of kind {kind!r}")
        self._ingredients = msgspec.msgpack.decode(context, type=Ingredients)
        self._ground = lay_ground(self._ingredients.model, self._ingredients.threads)

    def item(self, payload: bytes) -> bytes:
        """Obey one order.  Raises BuildError when a network cannot be compiled."""
        ingredients, ground = self._ingredients, self._ground
        if ingredients is None or ground is None:
            raise OrderError("an assembler was given an order before it was told the network")
        sketches = {sketch.digest: sketch for sketch in ingredients.sketches}
        match _ORDERS.decode(payload):
            case Assemble() as order:
                _assemble(ground, sketches, order)
                return b""
            case Replay(programs=programs):
                return msgspec.msgpack.encode(_replay(ground, sketches, programs))


def main(argv: Sequence[str] | None = None) -> None:
    """Serve until the race closes the channel."""
    worker.main(ASSEMBLER, lambda _arguments: (b"", AssemblerHandler()), argv)


def _assemble(ground: ContestGround, sketches: Mapping[str, Sketch], order: Assemble) -> None:
    chosen = {c.workload: (sketches[c.sketch], c) for c in order.programs if c.sketch != UNTUNED}
    program = assemble(ground.lowered, chosen, ground.target)
    manifest = describe_build(
        model_name=ground.model.name,
        model_digest=ground.model.digest,
        target=ground.canonical,
        threads=ground.threads,
        inputs=ground.model.inputs,
        outputs=ground.model.outputs,
        checks=ground.model.checks,
        chosen={workload: candidate.digest for workload, (_, candidate) in chosen.items()},
    )
    Executable.create(program.executable, program.weights, manifest).save(order.path)


def _replay(ground: ContestGround, sketches: Mapping[str, Sketch], programs: Sequence[Candidate]) -> list[str]:
    modules = {w.digest: w.module for w in ground.lowered.workloads}
    replayers: dict[str, Replayer] = {}
    structures: list[str] = []
    for candidate in programs:
        if candidate.sketch == UNTUNED:
            structures.append(structure_of(modules[candidate.workload]))
            continue
        if candidate.workload not in replayers:
            replayers[candidate.workload] = Replayer(modules[candidate.workload], ground.target)
        try:
            replayed = replayers[candidate.workload](sketches[candidate.sketch], candidate)
            structures.append(structure_of(replayed.schedule.mod))
        except BuildError:
            structures.append("")
    return structures


if __name__ == "__main__":
    main()
