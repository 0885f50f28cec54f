from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kintune.compiler.graph.workload import StandaloneWorkload

pytestmark = pytest.mark.tvm


def _workload(
    digest: str, *, flops: float = 0.0, moved: float = 0.0, occurrences: int = 1, reduces: bool = True
) -> StandaloneWorkload:
    from kintune.compiler.graph.workload import StandaloneWorkload

    module: Any = None
    return StandaloneWorkload(digest, digest, module, occurrences, flops, moved, 0.0, "conv2d", "conv2d", reduces)


def test_what_takes_time_and_reduces_is_worth_a_search() -> None:
    from kintune.compiler.graph.workload import is_tunable

    workloads = [
        _workload("conv", flops=1e9),
        _workload("matmul", flops=1e8),
        _workload("mean", flops=25e3),
        _workload("transpose", moved=1e8, reduces=False),
    ]
    assert is_tunable(workloads) == {"conv", "matmul"}


def test_often_and_little_is_much() -> None:
    from kintune.compiler.graph.workload import is_tunable

    assert is_tunable([_workload("conv", flops=1e9), _workload("mean", flops=1e6, occurrences=100)]) == {"conv", "mean"}


def test_moving_much_is_work() -> None:
    from kintune.compiler.graph.workload import is_tunable

    assert is_tunable([_workload("conv", flops=1e9), _workload("pool", flops=1e3, moved=1e8)]) == {"conv", "pool"}


def test_a_network_without_subgraphs_has_nothing_to_tune() -> None:
    from kintune.compiler.graph.workload import is_tunable

    assert is_tunable([]) == frozenset()


def test_the_kernels_of_a_network(small_conv: Any) -> None:
    from kintune.compiler.graph.workload import is_tunable

    tunable = is_tunable(small_conv.lowered.workloads)
    by_operator = {w.operator for w in small_conv.lowered.workloads if w.digest in tunable}
    assert {"conv2d", "depthwise", "dense"} <= by_operator
    assert "elementwise" not in by_operator
