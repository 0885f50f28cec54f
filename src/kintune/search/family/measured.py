"""Kin by measurement: subgraphs are a family when their samples rank each other's nearly as well as their own.

Before anything is measured, families are those by core operator; they part and merge as samples arrive, at no cost in
trials.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from kintune.search.family.relation import Relations
from kintune.search.family.samples import Samples
from kintune.search.family.subject import Subject

__all__ = ["PREFIX", "Measured"]

PREFIX = "measured:"
_KIN = 0.6  # kinship, on average over all pairs, from which on two groups are one
_LOYALTY = 0.15  # added between those that were a family before, so that noise does not move them


class Measured:
    """Implements `kintune.search.family.Families`."""

    dynamic = True

    def __init__(self, *, seed: int = 0, threads: int = 1) -> None:
        self._relations = Relations(seed=seed, threads=threads)

    def group(self, evidence: Sequence[Samples], previous: Mapping[str, str]) -> dict[str, str]:
        """The family of each workload; one with few samples goes with its likes by operator."""
        subjects = {samples.subject.workload: samples.subject for samples in evidence}
        relation = self._relations.relate(evidence)
        clusters = _clusters(_loyal(relation.kinship(), relation.workloads, previous))
        groups = [{relation.workloads[i] for i in cluster} for cluster in clusters]
        placed = {workload: position for position, group in enumerate(groups) for workload in group}
        homeless: dict[str, set[str]] = {}
        for workload, subject in sorted(subjects.items()):
            if workload not in placed:
                position = _like(subject, placed, subjects)
                home = homeless.setdefault(subject.operator, set()) if position is None else groups[position]
                home.add(workload)
        return _named([*groups, *homeless.values()], subjects, previous)


def _loyal(kinship: NDArray[np.float64], workloads: Sequence[str], previous: Mapping[str, str]) -> NDArray[np.float64]:
    families = [previous.get(workload, workload) for workload in workloads]
    same = np.array([[a == b for b in families] for a in families], dtype=np.float64).reshape(kinship.shape)
    return kinship + _LOYALTY * same


def _clusters(kinship: NDArray[np.float64]) -> list[list[int]]:
    """Agglomerative clustering with average linkage, down to the threshold."""
    clusters = [[i] for i in range(len(kinship))]
    while len(clusters) > 1:
        linked = [
            (float(kinship[np.ix_(left, right)].mean()), -i, -j)
            for i, left in enumerate(clusters)
            for j, right in enumerate(clusters)
            if i < j
        ]
        nearest, i, j = max(linked)
        if nearest < _KIN:
            break
        clusters[-i] += clusters.pop(-j)
    return clusters


def _like(subject: Subject, placed: Mapping[str, int], subjects: Mapping[str, Subject]) -> int | None:
    """The group of the subgraph with the same operator that is most like this one; None when there is none."""

    def distance(workload: str) -> tuple[bool, float, str]:
        other = subjects[workload]
        return other.signature != subject.signature, abs(math.log((1 + other.flops) / (1 + subject.flops))), workload

    likes = [workload for workload in placed if subjects[workload].operator == subject.operator]
    return placed[min(likes, key=distance)] if likes else None


def _named(groups: Sequence[set[str]], subjects: Mapping[str, Subject], previous: Mapping[str, str]) -> dict[str, str]:
    """A key for each group: that of the family most of it comes from, else one made of what its members are."""
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
    operators = Counter({s.operator: 0 for s in subjects.values()})
    operators.update(subjects[workload].operator for workload in sorted(group))
    (operator, _), *_ = operators.most_common(1)
    key = f"{PREFIX}{operator}"
    if key not in taken:
        return key
    members = "/".join(sorted(f"{subjects[w].operator}:{subjects[w].signature}" for w in group))
    key = f"{key}-{hashlib.sha256(members.encode()).hexdigest()[:6]}"
    return key if key not in taken else f"{key}-{hashlib.sha256('/'.join(sorted(group)).encode()).hexdigest()[:6]}"
