"""The programs that a job's process has built and still needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from kintune.core.candidate import UNTUNED, Candidate
from kintune.core.stage_requests import Built

__all__ = ["BuiltPrograms"]


class BuiltPrograms:
    """Programs that were built in this process; another process has to build them again.

    `timeable` has those that are still to be timed, with finalists.  `references` has the untuned program of each
    workload, by its digest; `unreferenced` counts how often one failed to build.
    """

    def __init__(self) -> None:
        self.timeable: dict[Candidate, Built] = {}
        self.references: dict[str, Built] = {}
        self.unreferenced: Counter[str] = Counter()

    @property
    def kernels(self) -> dict[str, Built]:
        """Those that can be linked into the network, by candidate digest."""
        built = [*self.timeable.values(), *self.references.values()]
        return {each.candidate: each for each in built if each.object_file}

    def observe(self, candidate: Candidate, built: Built) -> None:
        """Take in that a candidate was built, or could not be."""
        is_reference = candidate.sketch == UNTUNED
        if built.failure is None:
            self.timeable[candidate] = built
            if is_reference:
                self.references[candidate.workload] = built
        elif is_reference:
            self.unreferenced[candidate.workload] += 1

    def keep_only(self, candidates: Collection[Candidate], workload: str) -> None:
        """Let go of programs of a workload that are not among these candidates; its reference stays."""
        for candidate in [c for c in self.timeable if c.workload == workload and c not in candidates]:
            del self.timeable[candidate]
