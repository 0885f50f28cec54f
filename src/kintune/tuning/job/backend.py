"""What a tuning job needs the compiler for.  `kintune.tuning.job.tvm_backend` implements it; tests have a stand-in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from kintune.core.candidate import Candidate
from kintune.core.config import JobSpec
from kintune.core.stage_requests import Built
from kintune.core.stage_results import DraftResult, Packaged, PerProgramCheck, Prepared
from kintune.search.space import SearchSpace

__all__ = ["CompilerBackend"]


class CompilerBackend(Protocol):
    """The compiler's side of one job.  `prepare` comes first; it may be asked again after a restart."""

    def prepare(self, spec: JobSpec) -> Prepared:
        """Import and lower the model.

        Raises:
            InputError: it cannot be used.
        """
        ...

    def draft(self, chosen: Mapping[str, Candidate], kernels: Mapping[str, Built]) -> DraftResult:
        """Compile the network with the chosen program for each workload, and write it, to have it checked.

        That it cannot be compiled is an answer, not an error.
        """
        ...

    def space(self) -> SearchSpace:
        """The search space of the prepared network."""
        ...

    def explain(self) -> str:
        """The first of the user's nodes with which the network cannot be compiled, or computes something else.

        As messages name it; empty where nobody knows.
        """
        ...

    def package(self, chosen: Mapping[str, Candidate], kernels: Mapping[str, Built]) -> Packaged:
        """Compile the network with the chosen program for each workload, and the untuned one; write both.

        Raises:
            BuildError: the tuned network cannot be compiled.
        """
        ...

    def set_apart(self, chosen: Mapping[str, Candidate], kernels: Mapping[str, Built]) -> PerProgramCheck:
        """Compile the network that computes each subgraph a second time, with the untuned program, and write it."""
        ...

    def kept(self, packaged: Packaged) -> bool:
        """Whether what an earlier process of this job has written is still there, and where it is wanted now."""
        ...
