"""What onnxruntime's own profiler says of the nodes of its graph."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from kintune.core.call_times import NodeTime

if TYPE_CHECKING:
    from kintune_runtime.evaluation import KernelTime

__all__ = ["NodeTimes", "node_times", "summed_times"]

_AROUND = frozenset({"If", "Loop", "Scan"})
"""Operators whose time is that of the nodes inside them, which the profile has as well."""

_TIMED = "_kernel_time"  # the end of the names of events that tell the time of a node


class NodeTimes(msgspec.Struct, frozen=True):
    """The answer to a `ProfileNodesTurn`: the nodes in the order in which they ran, and onnxruntime's version."""

    nodes: tuple[NodeTime, ...]
    version: str


def node_times(events: Sequence[dict[str, Any]], untimed: int = 0) -> tuple[NodeTime, ...]:
    """The nodes that onnxruntime's profile (its file's events) tells of, in the order of their first run.

    The first `untimed` runs of each are left out where there are more.
    """
    runs: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for event in events:
        name = str(event.get("name", ""))
        operator = str(event.get("args", {}).get("op_name", ""))
        if event.get("cat") == "Node" and name.endswith(_TIMED) and operator not in _AROUND:
            key = (name.removesuffix(_TIMED), operator)
            runs.setdefault(key, []).append((float(event["ts"]), float(event["dur"])))
    found = []
    for (name, operator), times in runs.items():
        kept = times[untimed:] or times
        found.append(NodeTime(name, operator, statistics.median(us for _, us in kept), kept[-1][0]))
    return tuple(found)


def summed_times(runs: Sequence[Sequence[KernelTime]]) -> tuple[NodeTime, ...]:
    """The nodes of several runs of one graph, in the order in which they began in the last one that has all of them.

    A node that runs several times in one run, in the body of a loop, has the sum of these.
    """
    summed: list[dict[tuple[str, str, int], list[KernelTime]]] = []
    for run in runs:
        nodes: dict[tuple[str, str, int], list[KernelTime]] = {}
        for each in sorted(run, key=lambda each: each.start_us):
            if each.operator not in _AROUND:
                nodes.setdefault((each.kernel, each.operator, each.place), []).append(each)
        summed.append(nodes)
    fullest = max(reversed(summed), key=len, default={})
    return tuple(
        NodeTime(
            name,
            operator,
            statistics.median(
                sum(each.us for each in nodes[key]) for nodes in summed if (key := (name, operator, place)) in nodes
            ),
            times[0].start_us,
            len(times),
        )
        for (name, operator, place), times in fullest.items()
    )
