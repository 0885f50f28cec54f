"""Checks a trace strictly against the trace-event format, as far as Perfetto's importer reads it.

An object with `traceEvents`, of which each event is complete ("X") or metadata ("M").  Complete events of one thread
are nested: each pair of them is apart, or one holds the other; the importer drops what is not.
"""

from __future__ import annotations

import json
import math
from typing import Any

__all__ = ["trace_problems"]

_COMPLETE = {"ph": str, "pid": int, "tid": int, "name": str, "cat": str, "ts": (int, float), "dur": (int, float)}
_METADATA = {
    "process_name": ("name", str),
    "thread_name": ("name", str),
    "process_sort_index": ("sort_index", int),
    "thread_sort_index": ("sort_index", int),
}
_UNITS = ("ms", "ns")


def trace_problems(content: bytes) -> list[str]:
    """What is wrong with a trace, a line each; nothing if it is as it should be."""
    try:
        document = json.loads(content, parse_constant=lambda name: _refuse(f"{name} is no JSON"))
    except ValueError as error:
        return [f"no JSON: {error}"]
    if not isinstance(document, dict) or not isinstance(document.get("traceEvents"), list):
        return ["no object with a list of traceEvents"]
    problems = []
    if document.get("displayTimeUnit", "ms") not in _UNITS:
        problems.append(f"displayTimeUnit {document['displayTimeUnit']!r} is none of {', '.join(_UNITS)}")
    threads: dict[tuple[int, int], list[dict[str, Any]]] = {}
    named: set[tuple[int, int]] = set()
    processes: set[int] = set()
    for number, event in enumerate(document["traceEvents"]):
        found = _event_problems(event)
        problems += [f"event {number}: {each}" for each in found]
        if found:
            continue
        thread = (event["pid"], event["tid"])
        if event["ph"] == "X":
            threads.setdefault(thread, []).append(event)
        elif event["name"] == "thread_name":
            named.add(thread)
        elif event["name"] == "process_name":
            processes.add(event["pid"])
    for thread, events in threads.items():
        if thread not in named or thread[0] not in processes:
            problems.append(f"thread {thread[1]} of process {thread[0]} has no name")
        problems += _nesting_problems(events)
    return problems


def _refuse(why: str) -> None:
    raise ValueError(why)


def _event_problems(event: Any) -> list[str]:
    if not isinstance(event, dict):
        return ["no object"]
    if event.get("ph") == "M":
        return _metadata_problems(event)
    if event.get("ph") != "X":
        return [f"phase {event.get('ph')!r}"]
    problems = [
        f"{key} is {event.get(key)!r}"
        for key, kinds in _COMPLETE.items()
        if not isinstance(event.get(key), kinds) or isinstance(event.get(key), bool)
    ]
    if problems:
        return problems
    for key, least in (("ts", 0.0), ("dur", 0.0)):
        if not math.isfinite(event[key]) or event[key] < least:
            problems.append(f"{key} is {event[key]!r}")
    if not event["name"]:
        problems.append("its name is empty")
    if not isinstance(event.get("args", {}), dict):
        problems.append(f"args are {event['args']!r}")
    return problems


def _metadata_problems(event: dict[str, Any]) -> list[str]:
    if event.get("name") not in _METADATA:
        return [f"metadata {event.get('name')!r}"]
    key, kind = _METADATA[event["name"]]
    problems = [f"{each} is {event.get(each)!r}" for each in ("pid", "tid") if not isinstance(event.get(each), int)]
    arguments = event.get("args")
    if not isinstance(arguments, dict) or not isinstance(arguments.get(key), kind):
        problems.append(f"args.{key} of {event['name']} is missing")
    return problems


def _nesting_problems(events: list[dict[str, Any]]) -> list[str]:
    """Complete events that overlap without one holding the other, with times in whole nanoseconds as Perfetto has."""
    problems = []
    open_ends: list[tuple[int, str]] = []
    for event in sorted(events, key=lambda each: (each["ts"], -each["dur"])):
        begun, ended = round(event["ts"] * 1e3), round((event["ts"] + event["dur"]) * 1e3)
        while open_ends and open_ends[-1][0] <= begun:
            open_ends.pop()
        if open_ends and ended > open_ends[-1][0]:
            problems.append(f"{event['name']!r} ends after {open_ends[-1][1]!r}, in which it begins")
        open_ends.append((ended, event["name"]))
    return problems
