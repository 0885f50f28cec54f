"""Families by measurement: subgraphs are one family if a shared model ranks their programs as well as own models do.

Before anything is measured, families are those by core operator.  They are split and merged as samples arrive, which
takes no trials.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from kintune.core.workload import Subject
from kintune.search.family.relation import Relations
from kintune.search.family.samples import Samples

__all__ = ["PREFIX", "MeasuredFamilies", "clusters"]


PREFIX = "measured:"


_STRANGERS = 0.2  # mean similarity below which a merge of two groups is not tried


_LOYALTY = 0.2  # added to the similarity of subgraphs of the same previous family, so that these are always tried


_MARGIN = 0.02  # accuracy that a previous family may lose by sharing; others must not lose any


class MeasuredFamilies:
    """Implements `kintune.search.family.Families`."""

    dynamic = True

    def __init__(self, *, seed: int, threads: int) -> None:
        self._relations = Relations(seed=seed, threads=threads)

    def group(self, evidence: Sequence[Samples], previous: Mapping[str, str]) -> dict[str, str]:
        """Return the family key of each workload; one with too few samples joins a group of the same operator.

        A workload without a previous family counts as one of the family of its operator.
        """
        evidence = sorted(evidence, key=lambda samples: samples.subject.workload)
        subjects = {samples.subject.workload: samples.subject for samples in evidence}
        before = {workload: previous.get(workload, PREFIX + s.operator) for workload, s in subjects.items()}
        groups = self._grouped(evidence, before)
        placed = {workload: position for position, group in enumerate(groups) for workload in group}
        homeless: dict[str, set[str]] = {}
        for workload, subject in subjects.items():
            if workload not in placed:
                position = _like(subject, placed, subjects)
                home = homeless.setdefault(subject.operator, set()) if position is None else groups[position]
                home.add(workload)
        return _named([*groups, *homeless.values()], subjects, before)

    def _grouped(self, evidence: Sequence[Samples], before: Mapping[str, str]) -> list[set[str]]:
        """Return the groups of the workloads that have enough samples."""
        relation = self._relations.relate(evidence)
        names = relation.workloads
        same = np.array([[before[a] == before[b] for b in names] for a in names], dtype=np.float64)
        same = same.reshape(relation.matrix.shape)

        def merges(left: Sequence[int], right: Sequence[int]) -> bool:
            apart = [
                *self._relations.shared([names[i] for i in left]),
                *self._relations.shared([names[i] for i in right]),
            ]
            together = self._relations.shared([names[i] for i in (*left, *right)])
            return float(np.mean(together) - np.mean(apart)) >= -_MARGIN * float(same[np.ix_(left, right)].mean())

        found = clusters(relation.kinship() + _LOYALTY * same, _STRANGERS, merges)
        return [{names[i] for i in group} for group in found]


def _like(subject: Subject, placed: Mapping[str, int], subjects: Mapping[str, Subject]) -> int | None:
    """Return the group of the most similar subgraph with the same operator; None without one."""

    def distance(workload: str) -> tuple[bool, float, str]:
        other = subjects[workload]
        return other.signature != subject.signature, abs(math.log((1 + other.flops) / (1 + subject.flops))), workload

    likes = [workload for workload in placed if subjects[workload].operator == subject.operator]
    return placed[min(likes, key=distance)] if likes else None


def _named(groups: Sequence[set[str]], subjects: Mapping[str, Subject], previous: Mapping[str, str]) -> dict[str, str]:
    """Return the family key of each workload: the previous key with the largest overlap, or else a new one."""
    keys: dict[int, str] = {}
    overlaps = [
        (sum(subjects[w].weight for w in group if previous.get(w) == key), key, position)
        for position, group in enumerate(groups)
        for key in sorted({previous[w] for w in group if w in previous})
    ]
    for _, key, position in sorted(overlaps, key=lambda overlap: (-overlap[0], overlap[1], overlap[2])):
        if position not in keys and key not in keys.values():
            keys[position] = key
    for position, group in enumerate(groups):
        if position not in keys:
            keys[position] = _new_key(group, subjects, set(keys.values()))
    return {workload: keys[position] for position, group in enumerate(groups) for workload in sorted(group)}


def _new_key(group: set[str], subjects: Mapping[str, Subject], taken: set[str]) -> str:
    operators = Counter(subjects[workload].operator for workload in group)
    operator = min(operators, key=lambda name: (-operators[name], name))
    key = f"{PREFIX}{operator}"
    if key not in taken:
        return key
    members = "/".join(sorted(f"{subjects[w].operator}:{subjects[w].signature}" for w in group))
    key = f"{key}-{hashlib.sha256(members.encode()).hexdigest()[:6]}"
    return key if key not in taken else f"{key}-{hashlib.sha256('/'.join(sorted(group)).encode()).hexdigest()[:6]}"


def clusters(
    affinity: NDArray[np.float64], least: float, merges: Callable[[tuple[int, ...], tuple[int, ...]], bool]
) -> list[list[int]]:
    """Group the indices of `affinity`, a symmetric matrix of shape (n, n); each group is in ascending order.

    This is agglomerative clustering with average linkage, down to an affinity of `least`.  `merges` decides whether the
    nearest two groups are merged; a pair that it refused is tried again when one of the two has grown.
    """
    groups: list[tuple[int, ...]] = [(i,) for i in range(len(affinity))]
    apart: set[tuple[tuple[int, ...], tuple[int, ...]]] = set()
    while True:
        near = [
            (-float(affinity[np.ix_(left, right)].mean()), left, right)
            for at, left in enumerate(groups)
            for right in groups[at + 1 :]
            if (left, right) not in apart
        ]
        distance, left, right = min(near, default=(np.inf, (), ()))
        if -distance < least:
            return [list(group) for group in groups]
        if merges(left, right):
            groups = sorted([*(group for group in groups if group not in (left, right)), tuple(sorted(left + right))])
        else:
            apart.add((left, right))
