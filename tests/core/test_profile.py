"""What a profile says in words."""

from __future__ import annotations

import pytest

from kintune.core.profile import ProfiledCall, RegionProfile, narrow_precision, reached
from kintune.core.stage_results import BaselineLatencies


@pytest.mark.parametrize(
    ("share", "said"), [(0.0, "0%"), (0.504, "50%"), (1.0, "100%"), (1.001, ">100%"), (7.0, ">100%")]
)
def test_a_call_reaches_its_limit_or_is_above_it(share: float, said: str) -> None:
    assert reached(ProfiledCall(place=0, kernel="k", title="t", reached=share)) == said


def test_only_a_narrower_precision_is_named() -> None:
    plain = ProfiledCall(place=0, kernel="k", title="t")
    assert narrow_precision(plain) == ""
    assert narrow_precision(ProfiledCall(place=0, kernel="k", title="t", precision="bf16")) == "bf16"


def test_one_run_with_each_combination_is_the_sum_of_what_ran_with_all() -> None:
    each = ({"onnxruntime": (4.0, 1.0, 2.0, 3.0, 5.0), "torch": (9.0,), "openvino": ()}, {"onnxruntime": (10.0,)})
    found = BaselineLatencies(each)
    assert found.quartiles_ms() == ({"onnxruntime": 2.0, "torch": 9.0}, {"onnxruntime": 10.0})
    assert found.together_ms() == {"onnxruntime": 12.0}
    assert BaselineLatencies(each[:1]).together_ms() == {"onnxruntime": 2.0, "torch": 9.0}
    assert BaselineLatencies(()).together_ms() == {}


@pytest.mark.parametrize(("nodes", "said"), [((), "0 nodes"), (("a",), "1 node"), (("a", "b"), "2 nodes")])
def test_a_region_is_named_by_its_number_and_its_nodes(nodes: tuple[str, ...], said: str) -> None:
    region = RegionProfile(3, "r", 1, 2.0, 0.5, 1, 1.0, 0.5, 0.0, nodes)
    assert region.title == f"region 3 ({said})"
