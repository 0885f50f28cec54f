"""Imports and compiles a model in this process, without measuring anything."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kintune.models.model import ImportedModel
from kintune.runtime.target import resolve_target

if TYPE_CHECKING:
    from kintune.compiler.graph.lower import Lowered
    from kintune.core.candidate import Candidate, Sketch

__all__ = ["Compiler"]


class Compiler:
    """Compiles for one thread of this machine."""

    def __init__(self) -> None:
        import tvm

        self._text = resolve_target("native", 1)
        self._target = tvm.target.Target(json.loads(self._text))

    def compile(self, model: ImportedModel, *, rules: bool = False, keep_denormals: bool = False) -> Any:
        """The model as an executable; with `rules` each subgraph gets the first program of its rule.

        Without, subgraphs get the compiler's default schedule.

        Raises:
            BuildError: as for `build_executable`.
        """
        from kintune.compiler.graph.executable import build_executable, describe_build
        from kintune.compiler.graph.lower import lower

        lowered = lower(model.module, self._target)
        chosen = self._first_programs(lowered) if rules else {}
        manifest = describe_build(
            model_name=model.name,
            model_digest=model.digest,
            target=self._text,
            threads=1,
            inputs=model.inputs,
            outputs=model.outputs,
            checks=model.checks,
            chosen={},
            sketches=[sketch for sketch, _ in chosen.values()],
            keep_denormals=keep_denormals,
        )
        return build_executable(lowered, chosen, self._target, manifest)

    def _first_programs(self, lowered: Lowered) -> dict[str, tuple[Sketch, Candidate]]:
        """The first valid program by rule of each subgraph that has one."""
        from kintune.compiler.space.sketches import generate_sketches
        from kintune.compiler.space.tvm_space import TvmSpace
        from kintune.search.processor import Processor

        sketches: Sequence[Sketch] = [
            sketch
            for workload in lowered.workloads
            for sketch in generate_sketches(workload.digest, workload.module, self._target)
        ]
        by_digest = {sketch.digest: sketch for sketch in sketches}
        modules = {workload.digest: workload.module for workload in lowered.workloads}
        space = TvmSpace(modules, sketches, self._target, Processor(8, 16, 1), 1)
        chosen = {}
        for digest in modules:
            drafts = [draft for draft in space.verify(space.rules(digest, 2)) if draft]
            if drafts:
                chosen[digest] = (by_digest[drafts[0].candidate.sketch], drafts[0].candidate)
        return chosen
