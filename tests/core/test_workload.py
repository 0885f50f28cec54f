"""Subgraphs of several combinations of shapes."""

from __future__ import annotations

import msgspec
import pytest

from kintune.core.device import Peak
from kintune.core.workload import Subgraph, by_combination
from tests.support.toy_tools import toy_spec


def subgraph(name: str, each: tuple[int, ...] = (), weight: int = 0, **fields: float) -> Subgraph:
    return Subgraph(name, name, weight or sum(each), 1.0, "dense", "dense", True, each=each, **fields)  # type: ignore[arg-type]


def test_one_combination_has_all_of_them() -> None:
    given = [subgraph("a", weight=3), subgraph("b", weight=1)]
    assert by_combination(given) == [given]
    assert by_combination([]) == [[]]


def test_each_network_has_its_own_with_how_often_they_occur_in_it() -> None:
    networks = by_combination([subgraph("a", (2, 0)), subgraph("b", (0, 3)), subgraph("both", (1, 1))])
    assert [[(s.name, s.weight) for s in network] for network in networks] == [
        [("a", 2), ("both", 1)],
        [("b", 3), ("both", 1)],
    ]


def test_weights_stay_in_the_cache_if_those_of_the_largest_network_do() -> None:
    spec = msgspec.structs.replace(toy_spec(), cool_bytes=100)
    fits = [subgraph("a", (2, 0), weight_bytes=40.0, bytes=40.0), subgraph("b", (0, 1), weight_bytes=90.0, bytes=90.0)]
    assert spec.of_network(fits).protocol.operands == spec.of_network(fits).device_type.operands == "cool"
    larger = [*fits, subgraph("c", (0, 1), weight_bytes=20.0, bytes=20.0)]
    assert spec.of_network(larger).protocol.operands == "cold"


def test_a_network_that_is_lowered_again_and_larger_has_cold_weights() -> None:
    spec = msgspec.structs.replace(toy_spec(), cool_bytes=100)
    small = [subgraph("a", weight=1, weight_bytes=40.0, bytes=40.0)]
    large = [subgraph("a", weight=1, weight_bytes=140.0, bytes=140.0)]
    assert spec.of_network(small).of_network(large) == spec.of_network(large)
    assert spec.of_network(large).of_network(small) == spec.of_network(small)


def test_the_combination_is_no_part_of_the_name_that_records_keep() -> None:
    assert [subgraph(name).own_name for name in ("fused_matmul", "fused_matmul@1x32")] == ["fused_matmul"] * 2


def test_a_bound_is_that_of_the_narrowest_program() -> None:
    peak = Peak(100.0, 10.0, 2, 10.0, {"bf16": 1000.0})
    dense = subgraph("a", weight=1, weight_bytes=1e6)
    dense = msgspec.structs.replace(dense, flops=1e8)
    assert dense.bound_us(peak) == pytest.approx(1000.0)
    narrow = msgspec.structs.replace(dense, narrowest="bf16")
    assert narrow.bound_us(peak) == pytest.approx(100.0)
    large = msgspec.structs.replace(narrow, weight_bytes=1e7)
    assert large.bound_us(peak) == pytest.approx(500.0), "half of the weights"
    fp32 = subgraph("a", weight=1, weight_bytes=1e8)
    assert fp32.bound_us(peak) == pytest.approx(1e4), "all of its weights"
