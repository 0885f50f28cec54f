"""The trace is of the format that Perfetto reads."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.core.profile import Profile
from kintune.profiling.trace import trace_json
from tests.support.profiles import PROFILE, alone, in_parts
from tests.support.trace_events import trace_problems


def slices(document: dict[str, Any], process: int) -> list[dict[str, Any]]:
    return [event for event in document["traceEvents"] if event["ph"] == "X" and event["pid"] == process]


@pytest.mark.parametrize("profile", [PROFILE, alone(), in_parts()], ids=["both", "alone", "in parts"])
def test_the_trace_is_as_the_format_asks_for(profile: Profile) -> None:
    assert trace_problems(trace_json(profile)) == []


@given(
    begun=st.lists(st.floats(0.0, 1e5), min_size=3, max_size=3),
    lengths=st.lists(st.floats(0.0, 1e3), min_size=3, max_size=3),
)
def test_calls_never_overlap_whatever_their_clock_says(begun: list[float], lengths: list[float]) -> None:
    timeline = tuple(zip((0, 1, 3), begun, lengths, strict=True))
    assert trace_problems(trace_json(msgspec.structs.replace(PROFILE, timeline=timeline))) == []
    parts = in_parts()
    timeline = tuple(zip((0, 1, 2), begun, lengths, strict=True))
    assert trace_problems(trace_json(msgspec.structs.replace(parts, timeline=timeline))) == []


def test_calls_are_where_they_ran() -> None:
    first, second, third = slices(json.loads(trace_json(PROFILE)), 1)
    assert (first["ts"], first["dur"], first["name"]) == (0.0, 398.0, "layer3/conv2 (Conv) + Add + Relu")
    assert second["ts"] >= first["ts"] + first["dur"]
    assert third["args"]["limit"] == "launch"


def test_onnxruntime_is_a_process_of_its_own() -> None:
    nodes = slices(json.loads(trace_json(PROFILE)), 2)
    assert [node["name"] for node in nodes] == ["layer3/conv2", "softmax", "ReorderOutput"]
    assert slices(json.loads(trace_json(alone())), 2) == []


def test_nodes_and_regions_are_beside_the_kernels() -> None:
    document = json.loads(trace_json(in_parts()))
    threads = {each["tid"]: each["args"]["name"] for each in document["traceEvents"] if each["name"] == "thread_name"}
    kernels, around = ([event for event in slices(document, 1) if event["tid"] == number] for number in sorted(threads))
    assert [event["cat"] for event in kernels] == ["kernel", "kernel"]
    assert kernels[1]["ts"] >= kernels[0]["ts"] + kernels[0]["dur"]  # though its own clock said earlier
    assert {event["name"]: event["ts"] for event in around} == {"softmax: softmax": 440.0, "region 1 (2 nodes)": 4.0}
