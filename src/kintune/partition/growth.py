"""Grows convex regions of nodes in a graph.  Nodes are numbers; nothing here depends on ONNX.

A region is convex if no path between two of its nodes leaves it.  If all regions are convex, and there is no cycle
between them, each can be replaced by one node.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

__all__ = ["grow_regions"]


def grow_regions(needed: Sequence[Iterable[int]], inside: Sequence[bool]) -> tuple[tuple[int, ...], ...]:
    """Return the regions, each a tuple of ascending node numbers; the regions are in order of their first nodes.

    `needed` has for each node the numbers of the nodes whose results it reads, all less than its own; `inside` says
    which nodes may be in a region.  Each of these is in exactly one region.  Nodes of a region are connected through
    nodes of the region.

    First, each node gets the largest number of changes, on a path to it, between nodes that may be in a region and
    nodes that may not.  Neighbours that may be in a region, and have equal numbers, form one: there cannot be a cycle
    between such regions.  Then neighbouring regions are merged as long as no path leaves the merged region and comes
    back.
    """
    before = [frozenset(numbers) for numbers in needed]
    region = _by_changes(before, inside)
    _merge(before, inside, region)
    grouped: dict[int, list[int]] = defaultdict(list)
    for number, name in enumerate(region):
        if inside[number]:
            grouped[name].append(number)
    return tuple(sorted(tuple(members) for members in grouped.values()))


def _by_changes(before: Sequence[frozenset[int]], inside: Sequence[bool]) -> list[int]:
    """The first regions: for each node the smallest number of a node in its region."""
    changes: list[int] = []
    parent = list(range(len(before)))
    for number, sources in enumerate(before):
        changes.append(max((changes[s] + (inside[s] != inside[number]) for s in sources), default=0))
    for number, sources in enumerate(before):
        for source in sources:
            if inside[number] and inside[source] and changes[number] == changes[source]:
                a, b = _root(parent, number), _root(parent, source)
                parent[max(a, b)] = min(a, b)
    return [_root(parent, number) for number in range(len(before))]


def _root(parent: list[int], number: int) -> int:
    while parent[number] != number:
        parent[number] = parent[parent[number]]
        number = parent[number]
    return number


def _merge(before: Sequence[frozenset[int]], inside: Sequence[bool], region: list[int]) -> None:
    """Merge neighbouring regions in `region` where that leaves no cycle, until nothing more can be merged.

    Largest regions are tried first.
    """
    merged = True
    while merged:
        merged = False
        users: dict[int, set[int]] = defaultdict(set)
        sizes: dict[int, int] = defaultdict(int)
        for number, sources in enumerate(before):
            sizes[region[number]] += 1
            for source in sources:
                if region[source] != region[number]:
                    users[region[source]].add(region[number])
        pairs = sorted(
            (-(sizes[a] + sizes[b]), a, b) for a, found in users.items() for b in found if inside[a] and inside[b]
        )
        for _, a, b in pairs:
            if not _reaches_by_others(users, a, b):
                low, high = min(a, b), max(a, b)
                region[:] = [low if name == high else name for name in region]
                merged = True
                break


def _reaches_by_others(users: dict[int, set[int]], start: int, end: int) -> bool:
    """Whether a path of at least two edges leads from `start` to `end`."""
    seen: set[int] = set()
    stack = [name for name in users[start] if name != end]
    while stack:
        name = stack.pop()
        if name == end:
            return True
        if name not in seen:
            seen.add(name)
            stack.extend(users.get(name, ()))
    return False
