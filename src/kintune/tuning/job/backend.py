"""The interface of a tuning job to the compiler.  `kintune.tuning.job.tvm_backend` implements it; tests have a fake."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from kintune.core.candidate import Candidate
from kintune.core.config import JobSpec
from kintune.core.keeping import Keeping
from kintune.core.stage_requests import BaselineItem, Built
from kintune.core.stage_results import DraftResult, Packaged, PerProgramCheck, Prepared
from kintune.search.space import SearchSpace

__all__ = ["CompilerBackend"]


class CompilerBackend(Protocol):
    """The compiler's side of one job.  `prepare` is called first, and may be called again after a restart."""

    def prepare(self, spec: JobSpec) -> Prepared:
        """Import and lower the model.

        Raises:
            InputError: it cannot be used.
        """
        ...

    def baseline_item(self) -> BaselineItem | None:
        """Return what is to be timed of the prepared network's model before the search.

        None if none of the runtimes that were asked for takes the model, or runs on the device.
        """
        ...

    def draft(
        self,
        chosen: Mapping[str, Candidate],
        kernels: Mapping[str, Built],
        *,
        keeping: Keeping = Keeping.NONE,
        beside: Mapping[str, Candidate] | None = None,
    ) -> DraftResult:
        """Compile the network with the chosen program for each workload, and write it, to have it checked.

        By `keeping`, tensors are kept in bf16 between kernels where they can be; then the network is written once
        more without, to be timed beside it.  A network without such tensors counts as one that cannot be compiled.
        With programs `beside`, the network is written once more with these.

        A network that cannot be compiled is a result, not an error.
        """
        ...

    def space(self) -> SearchSpace:
        """Return the search space of the prepared network."""
        ...

    def packing(self, candidate: Candidate) -> str:
        """Return a name of the layout in which a program of the prepared network wants its weights.

        It has no side effects and is deterministic.  Equal names of two programs say that they lay out equal weights
        equally.
        """
        ...

    def explain(self) -> str:
        """Return the first of the user's nodes that cannot be compiled or computes something else.

        The name is that of messages; it is empty if the node cannot be found.
        """
        ...

    def package(
        self,
        chosen: Mapping[str, Candidate],
        kernels: Mapping[str, Built],
        *,
        keeping: Keeping = Keeping.NONE,
        untuned: bool = True,
    ) -> Packaged:
        """Compile the network with the chosen program for each workload, with `untuned` also the untuned one; write it.

        By `keeping`, tensors are kept in bf16 between kernels of the former where they can be.

        Raises:
            BuildError: the tuned network cannot be compiled.
        """
        ...

    def set_apart(self, chosen: Mapping[str, Candidate], kernels: Mapping[str, Built]) -> PerProgramCheck:
        """Compile the networks that compute each subgraph a second time, with the untuned program, and write them."""
        ...

    def kept(self, packaged: Packaged) -> bool:
        """Return whether what an earlier process of this job wrote is still there, unchanged, at the current output."""
        ...
