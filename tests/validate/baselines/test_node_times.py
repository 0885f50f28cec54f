"""What is read of onnxruntime's own profile."""

from __future__ import annotations

from typing import Any

from kintune.core.call_times import NodeTime
from kintune.validate.baselines.node_times import node_times, summed_times
from kintune_runtime.evaluation import KernelTime


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


def test_a_node_that_runs_several_times_has_the_sum() -> None:
    def run(extra: float) -> list[KernelTime]:
        return [
            KernelTime(0, "inner", 2.0 + extra, 6.0, "Add"),
            KernelTime(0, "inner", 3.0, 3.0, "Add"),
            KernelTime(1, "loop", 9.0, 2.0, "Loop"),
            KernelTime(0, "first", 1.0 + extra, 0.0, "Add"),
        ]

    found = summed_times([run(0.0), run(1.0), run(8.0)])
    assert found == (NodeTime("first", "Add", 2.0, 0.0), NodeTime("inner", "Add", 6.0, 3.0, 2))
    assert summed_times([]) == ()
