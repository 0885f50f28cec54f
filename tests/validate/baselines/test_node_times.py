"""What is read of onnxruntime's own profile."""

from __future__ import annotations

from typing import Any

from kintune.validate.baselines.node_times import NodeTime, node_times


def event(name: str, op: str, ts: int, dur: int, cat: str = "Node") -> dict[str, Any]:
    return {"cat": cat, "name": name, "ts": ts, "dur": dur, "args": {"op_name": op}}


def test_nodes_have_the_median_of_their_timed_runs() -> None:
    events = [event("conv_kernel_time", "Conv", at, us) for at, us in ((0, 90), (100, 5), (200, 7), (300, 6))]
    assert node_times(events, untimed=1) == (NodeTime("conv", "Conv", 6.0, 300.0),)


def test_a_single_run_is_kept() -> None:
    assert node_times([event("a_kernel_time", "Add", 3, 4)], untimed=1) == (NodeTime("a", "Add", 4.0, 3.0),)


def test_sessions_fences_and_nodes_around_others_are_left_out() -> None:
    events = [
        event("model_run", "", 0, 99, cat="Session"),
        event("conv_fence_before", "Conv", 0, 1),
        event("choice_kernel_time", "If", 0, 50),
        event("relu_kernel_time", "Relu", 1, 2),
    ]
    assert [node.name for node in node_times(events)] == ["relu"]
