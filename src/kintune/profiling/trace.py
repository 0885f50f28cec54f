"""A profile as a trace: the JSON of Chrome's trace-event format, which Perfetto and chrome://tracing show."""

from __future__ import annotations

from typing import Any

import msgspec

from kintune.profiling.profile import Profile, ProfiledCall

__all__ = ["trace_json"]

_KINTUNE, _ONNXRUNTIME = 1, 2  # processes of the trace


def trace_json(profile: Profile) -> bytes:
    """One run of the network, call by call, and below it one of onnxruntime, where there was one; times in us."""
    events: list[dict[str, Any]] = _process(_KINTUNE, f"Kintune: {profile.model}", "kernels")
    calls = {call.place: call for call in profile.calls}
    first = min((start for _, start, _ in profile.timeline), default=0.0)
    events += [
        _slice(_KINTUNE, calls[place].title, "kernel", start - first, us, _arguments(calls[place]))
        for place, start, us in profile.timeline
        if place in calls
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
        "traceEvents": events,
    }
    return msgspec.json.encode(document)


def _process(number: int, name: str, thread: str) -> list[dict[str, Any]]:
    return [
        {"ph": "M", "pid": number, "tid": number, "name": "process_name", "args": {"name": name}},
        {"ph": "M", "pid": number, "tid": number, "name": "process_sort_index", "args": {"sort_index": number}},
        {"ph": "M", "pid": number, "tid": number, "name": "thread_name", "args": {"name": thread}},
    ]


def _slice(number: int, name: str, kind: str, start: float, us: float, arguments: dict[str, Any]) -> dict[str, Any]:
    begun = round(max(start, 0.0), 3)
    return {
        "ph": "X", "pid": number, "tid": number, "name": name, "cat": kind, "ts": begun, "dur": round(us, 3),
        "args": arguments,
    }  # fmt: skip


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
