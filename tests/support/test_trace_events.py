from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.trace_events import trace_problems

NAMES = [
    {"ph": "M", "pid": 1, "tid": 1, "name": "process_name", "args": {"name": "p"}},
    {"ph": "M", "pid": 1, "tid": 1, "name": "thread_name", "args": {"name": "t"}},
]


def event(**changes: Any) -> dict[str, Any]:
    return {"ph": "X", "pid": 1, "tid": 1, "name": "a", "cat": "kernel", "ts": 0.0, "dur": 2.0, "args": {}, **changes}


def problems(*events: Any, **changes: Any) -> str:
    return "; ".join(trace_problems(json.dumps({"traceEvents": [*NAMES, *events], **changes}).encode()))


def test_a_trace_that_is_as_it_should_be() -> None:
    assert problems(event(), event(ts=2.0), event(ts=2.5, dur=0.5), event(ts=4)) == ""


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (problems(event(ts=-1.0)), "ts is -1.0"),
        (problems(event(dur=float("nan"))), "no JSON"),
        (problems(event(ph="B")), "phase 'B'"),
        (problems(event(tid="1")), "tid is '1'"),
        (problems(event(name="")), "its name is empty"),
        (problems(event(tid=2)), "thread 2 of process 1 has no name"),
        (problems(event(), event(ts=1.0, name="b")), "'b' ends after 'a', in which it begins"),
        (problems({"ph": "M", "pid": 1, "tid": 1, "name": "thread_name"}), "args.name of thread_name is missing"),
        (problems(displayTimeUnit="us"), "displayTimeUnit 'us'"),
        ("; ".join(trace_problems(b"[]")), "no object with a list"),
    ],
)
def test_what_is_wrong_is_told(found: str, said: str) -> None:
    assert said in found
