"""A profile as a trace: the JSON of Chrome's trace-event format, which Perfetto and chrome://tracing show."""

from __future__ import annotations

from typing import Any

import msgspec

from kintune.core.profile import IN_ONNXRUNTIME, Profile, ProfiledCall

__all__ = ["trace_json"]

_KINTUNE, _ONNXRUNTIME = 1, 2  # processes of the trace
_NODES = 3  # the thread of the first process that has onnxruntime's nodes


def trace_json(profile: Profile) -> bytes:
    """One run of the network, call by call, and below it one of onnxruntime, where there was one; times in us."""
    events: list[dict[str, Any]] = _process(_KINTUNE, f"Kintune: {profile.model}", "kernels")
    calls = {call.place: call for call in profile.calls}
    timeline = [(calls[place], start, us) for place, start, us in profile.timeline if place in calls]
    if profile.is_hybrid:
        events += _hybrid(profile, timeline)
        timeline = []
    first = min((start for _, start, _ in timeline), default=0.0)
    events += [
        _slice(_KINTUNE, call.title, "kernel", start - first, us, _arguments(call)) for call, start, us in timeline
    ]
    if profile.onnxruntime is not None:
        onnx = profile.onnxruntime
        events += _process(_ONNXRUNTIME, f"onnxruntime {onnx.version}", "nodes")
        events += [
            _slice(
                _ONNXRUNTIME,
                node.name.removeprefix(profile.prefix),
                "node",
                node.start_us,
                node.us,
                {"operator": node.op, "median us": round(node.us, 2)},
            )
            for node in onnx.nodes
        ]
    document = {
        "displayTimeUnit": "ns",
        "otherData": {"model": profile.model, "cpu": profile.cpu, "threads": str(profile.threads)},
        "traceEvents": _in_turns(events),
    }
    return msgspec.json.encode(document)


def _hybrid(profile: Profile, timeline: list[tuple[ProfiledCall, float, float]]) -> list[dict[str, Any]]:
    """A row of the nodes that onnxruntime tells of, regions among them, and one of the kernels of regions.

    Kernels were timed in their regions alone: they may seem to end behind their region.
    """
    events = [_thread(_KINTUNE, _NODES, "onnxruntime: nodes and regions")]
    for call, start, us in timeline:
        if call.where == IN_ONNXRUNTIME:
            arguments = {"operator": "".join(call.operators), "median us": round(call.us, 2)}
            events.append(_slice(_KINTUNE, call.title, "node", start, us, arguments, _NODES))
        else:
            arguments = {**_arguments(call), "region": call.region}
            events.append(_slice(_KINTUNE, call.title, "kernel", start, us, arguments))
    for region in profile.regions:
        if region.times:
            arguments = {
                "median us": round(region.us, 2),
                "kernels us": round(region.kernels_us, 2),
                "boundary us": round(region.boundary_us, 2),
            }
            us = region.us / region.times
            events.append(_slice(_KINTUNE, region.title, "region", region.start_us, us, arguments, _NODES))
    return events


def _process(number: int, name: str, thread: str) -> list[dict[str, Any]]:
    return [
        {"ph": "M", "pid": number, "tid": number, "name": "process_name", "args": {"name": name}},
        {"ph": "M", "pid": number, "tid": number, "name": "process_sort_index", "args": {"sort_index": number}},
        _thread(number, number, thread),
    ]


def _thread(number: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": number, "tid": thread, "name": "thread_name", "args": {"name": name}}


def _slice(
    number: int, name: str, kind: str, start: float, us: float, arguments: dict[str, Any], thread: int = 0
) -> dict[str, Any]:
    """A slice of a process, on its first thread if `thread` is 0."""
    return {
        "ph": "X", "pid": number, "tid": thread or number, "name": name, "cat": kind, "ts": max(start, 0.0), "dur": us,
        "args": arguments,
    }  # fmt: skip


def _in_turns(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The events in order, delayed so that those of one thread do not overlap.

    They did not overlap when they ran, but some lengths are medians, and all times are rounded to nanoseconds.
    Perfetto drops a slice that begins in another one and ends behind it.
    """
    ended: dict[tuple[int, int], int] = {}
    placed = []
    for event in sorted(events, key=lambda event: event.get("ts", 0.0)):
        if event["ph"] == "X":
            thread = (event["pid"], event["tid"])
            begun = max(round(event["ts"] * 1e3), ended.get(thread, 0))
            ended[thread] = begun + max(1, round(event["dur"] * 1e3))
            event = {**event, "ts": begun / 1e3, "dur": (ended[thread] - begun) / 1e3}
        placed.append(event)
    return placed


def _arguments(call: ProfiledCall) -> dict[str, Any]:
    return {
        "kernel": call.kernel,
        "nodes": ", ".join(f"{node.op} {node.name}" for node in call.nodes),
        "operators": " + ".join(call.operators),
        "threads": call.threads,
        "median us": round(call.us, 2),
        "GFLOP/s": round(call.gflops, 1),
        "GB/s": round(call.gbytes_per_s, 1),
        "limit": call.limit.value,
        "share of the limit": round(call.reached, 3),
    }
