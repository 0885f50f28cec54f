"""What onnxruntime's own profiler says of the nodes of its graph."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import msgspec

__all__ = ["NodeTime", "NodeTimes", "node_times"]

_AROUND = frozenset({"If", "Loop", "Scan"})
"""Operators whose time is that of the nodes inside them, which the profile has as well."""

_TIMED = "_kernel_time"  # the end of the names of events that tell the time of a node


class NodeTime(msgspec.Struct, frozen=True):
    """A node of onnxruntime's graph: its name and operator, the median microseconds, and when it began in one run."""

    name: str
    op: str
    us: float
    start_us: float


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
