"""Families by a rule that does not depend on measurements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kintune.core.workload import Subject
from kintune.search.family.samples import Samples

__all__ = ["StaticFamilies"]


class StaticFamilies:
    """Implements `kintune.search.family.Families` by a function from a subgraph to its family's key."""

    dynamic = False

    def __init__(self, family_of: Callable[[Subject], str]) -> None:
        self._family_of = family_of

    def group(self, evidence: Sequence[Samples], previous: Mapping[str, str]) -> dict[str, str]:
        """Return the family key of each workload."""
        del previous
        return {samples.subject.workload: self._family_of(samples.subject) for samples in evidence}
