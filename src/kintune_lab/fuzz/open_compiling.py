"""Compiles models for any extents in ranges, in this process, without measuring anything."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from kintune.compiler.graph.generalise import Unlike
from kintune.compiler.graph.lower import lower
from kintune.compiler.graph.open_plan import MorePoints
from kintune.core.model import Combination, ModelRef
from kintune.errors import BuildError, KintuneError
from kintune.models.model import ImportedModel
from kintune.models.open_shapes import open_shapes
from kintune.tuning.job.open_network import OpenNetwork
from kintune_lab.fuzz.compiling import Chosen, Compiler
from kintune_lab.fuzz.evaluation import Refused

__all__ = ["OpenCompiler"]

_RANKED = 4  # programs of a subgraph, of which the first that is written for any extents is taken
_REFUSED = ("for all extents", "cannot be lowered for")
"""What texts of a `BuildError` that refuses say."""


class OpenCompiler(Compiler):
    """Compiles models whose ref has ranges; what is lowered is an `OpenNetwork`."""

    def lower_as(self, ref: ModelRef, model: ImportedModel) -> Any:
        """The network for any extents; `model` is imported for the greatest ones.

        Raises:
            Refused: it cannot be imported at some extents, or is not the same for all.
        """
        lowered = lower(model.module, self._target, any_size=True)
        with _refusing():
            shapes = open_shapes(ref, model.inputs)
            shaped = Combination(shapes.ranged(model.inputs), model.outputs, model.checks)
            return OpenNetwork(shapes, shaped, lowered, self._target, conservative=False)

    def first_programs(self, lowered: Any) -> Chosen:
        """The first program by rule of each subgraph that is written for any extents."""
        found = {
            digest: next((each for each in ranked if lowered.is_open(*each)), None)
            for digest, ranked in self.ranked_programs(lowered.lowered, _RANKED).items()
        }
        return Chosen({digest: program for digest, program in found.items() if program})

    def build(self, model: ImportedModel, lowered: Any, chosen: Chosen, *, keep_denormals: bool = False) -> Any:
        """As `Compiler.build`; programs that turn out to be others at some extents are left out, as a job does.

        Raises:
            BuildError: as for `build_open`.
            Refused: as for `lower_as`.
        """
        manifest = self._described(lowered.model or model, chosen, keep_denormals=keep_denormals)
        programs = dict(chosen.programs)
        while True:
            try:
                with _refusing():
                    return lowered.build(programs, manifest, threads=1)
            except BuildError as error:
                if "not written for all extents" not in str(error) or programs.keys().isdisjoint(error.at_fault):
                    raise
                programs = {digest: each for digest, each in programs.items() if digest not in error.at_fault}


@contextlib.contextmanager
def _refusing() -> Iterator[None]:
    """Raises `Refused` for an error that says what a network cannot do, and not that the compiler failed."""
    try:
        yield
    except KintuneError as error:
        if _is_refusal(error):
            raise Refused(str(error)) from error
        raise


def _is_refusal(error: BaseException | None) -> bool:
    """Whether neither the error nor a cause of it is one of the compiler, which it calls "cannot be compiled"."""
    while error is not None:
        if "cannot be compiled" in str(error) or "not written for all extents" in str(error):
            return False
        if isinstance(error, BuildError):
            by_compiler = not isinstance(error.__cause__, KintuneError | Unlike | MorePoints | None)
            if by_compiler or not any(each in str(error) for each in _REFUSED):
                return False
        error = error.__cause__
    return True
