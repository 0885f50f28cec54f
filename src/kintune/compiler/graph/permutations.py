"""Axis orders, which map the axes of a network's tensor to the axes of the tensor that stores it.

With an order `p`, axis `i` of the network's tensor is axis `p[i]` of the stored one.  A convolution's result of shape
(N, C, H, W) that is stored as (N, H, W, C) has the order (0, 3, 1, 2).
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = [
    "arranged",
    "compose",
    "expanded",
    "identity",
    "inverse",
    "is_copy_free",
    "reduced",
    "regrouped",
    "reshaped",
    "spread",
    "stored",
]

Order = tuple[int, ...]
Shape = tuple[int, ...]


def identity(rank: int) -> Order:
    """The order of a tensor that is stored with its axes as the network has them."""
    return tuple(range(rank))


def inverse(order: Sequence[int]) -> Order:
    """The axes of the tensor in the order in which they are stored: a transpose by them brings it into this order."""
    return tuple(sorted(range(len(order)), key=lambda axis: order[axis]))


def compose(order: Sequence[int], axes: Sequence[int]) -> Order:
    """The order of the tensor's transpose by `axes`, stored by the same elements in memory."""
    return tuple(order[axis] for axis in axes)


def stored(shape: Sequence[int], order: Sequence[int]) -> Shape:
    """The stored shape of a tensor of `shape`."""
    return tuple(shape[axis] for axis in inverse(order))


def arranged(shape: Sequence[int], order: Sequence[int]) -> Order:
    """The axes with more than one element in the order in which they are stored; the others do not affect memory."""
    return tuple(axis for axis in inverse(order) if shape[axis] != 1)


def is_copy_free(shape: Sequence[int], one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether two orders store the elements of a tensor of `shape` alike, so that a reshape converts between them."""
    return arranged(shape, one) == arranged(shape, other)


def expanded(order: Sequence[int], rank: int) -> Order:
    """The order of the tensor with axes of one element added in front, up to `rank`."""
    more = rank - len(order)
    return (*range(more), *(axis + more for axis in order))


def reduced(order: Sequence[int], removed: Sequence[int]) -> Order:
    """The order of the tensor without the axes `removed`."""
    kept = [order[axis] for axis in range(len(order)) if axis not in removed]
    places = {place: i for i, place in enumerate(sorted(kept))}
    return tuple(places[place] for place in kept)


def reshaped(shape: Shape, order: Order, wanted: Shape) -> Order | None:
    """The order of a tensor of `shape` after a reshape to `wanted` that leaves its elements where they are in memory.

    None when elements would have to move: axes that are merged must be adjacent in memory, in their order.
    """
    if 0 in shape or 0 in wanted:
        return None
    groups = _groups(shape, wanted)
    if groups is None:
        return None
    memory = list(arranged(shape, order))
    after: list[int] = []
    first = {group[0]: (group, results) for group, results in groups}
    at = 0
    while at < len(memory):
        if memory[at] not in first:
            return None
        group, results = first[memory[at]]
        if memory[at : at + len(group)] != group:
            return None
        after += results
        at += len(group)
    return inverse(_with_ones(after, wanted))


def regrouped(shape: Shape, order: Order, wanted: Shape) -> Order | None:
    """An order close to the tensor's own in which a reshape to `wanted` leaves elements where they are in memory.

    Axes that are merged or split together become adjacent, at the place of the first of them.  So channels that were
    last stay last when blocks of them move into the rows and columns.  None when the shapes cannot be matched.
    """
    groups = None if 0 in shape or 0 in wanted else _groups(shape, wanted)
    if groups is None:
        return None
    together = sorted((group for group, _ in groups), key=lambda group: order[group[0]])
    return inverse(_with_ones([axis for group in together for axis in group], shape))


def spread(before: Shape, after: Shape, operand: Shape) -> Shape | None:
    """The shape for an operand, which broadcasts to `after`, with which it broadcasts to `before` a reshape instead.

    None when there is none: of axes that are merged or split together, the operand must have all or none.
    """
    groups = None if 0 in before or 0 in after or len(operand) > len(after) else _groups(before, after)
    if groups is None:
        return None
    operand = (1,) * (len(after) - len(operand)) + operand
    shape = [1] * len(before)
    for sources, targets in groups:
        whole = [operand[axis] == after[axis] for axis in targets]
        if all(whole):
            for axis in sources:
                shape[axis] = before[axis]
        elif any(operand[axis] != 1 for axis in targets):
            return None
    return tuple(shape)


def _groups(shape: Shape, wanted: Shape) -> list[tuple[list[int], list[int]]] | None:
    """The smallest groups of axes of `shape` and axes of `wanted`, in order, whose products are equal; else None.

    Axes of one element are left out.
    """
    sources = [axis for axis, extent in enumerate(shape) if extent != 1]
    targets = [axis for axis, extent in enumerate(wanted) if extent != 1]
    groups: list[tuple[list[int], list[int]]] = []
    while sources or targets:
        if not sources or not targets:
            return None
        group, results = [sources.pop(0)], [targets.pop(0)]
        have, want = shape[group[0]], wanted[results[0]]
        while have != want:
            if have < want and sources:
                group.append(sources.pop(0))
                have *= shape[group[-1]]
            elif have > want and targets:
                results.append(targets.pop(0))
                want *= wanted[results[-1]]
            else:
                return None
        groups.append((group, results))
    return groups


def _with_ones(memory: Sequence[int], shape: Shape) -> list[int]:
    """The axes in memory order, with each axis of one element inserted after the axis before it."""
    places = list(memory)
    for axis, extent in enumerate(shape):
        if extent == 1:
            places.insert(places.index(axis - 1) + 1 if axis else 0, axis)
    return places
