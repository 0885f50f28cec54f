from __future__ import annotations

import msgspec

from kintune.core.stage_results import ValidationResult
from kintune.core.verdict import Verdict

EXCUSED = ValidationResult({}, 0.5, 0.25, Verdict.RIGHT, ("onnxruntime",), {}, basis="rounding")


def test_subgraphs_that_are_right_alone_leave_the_verdict() -> None:
    alone = ValidationResult({}, None, None, Verdict.RIGHT, (), {}, alone=("a", "b"), not_alone={"c": "takes long"})
    expected = msgspec.structs.replace(EXCUSED, alone=("a", "b"), not_alone={"c": "takes long"})
    assert EXCUSED.with_alone(alone) == expected


def test_one_subgraph_that_is_wrong_alone_makes_the_network_wrong() -> None:
    alone = ValidationResult(
        {}, None, None, Verdict.WRONG, (), {}, "a: wrong numbers", alone=("a",), wrong_alone={"w": "wrong numbers"}
    )
    assert EXCUSED.with_alone(alone) == msgspec.structs.replace(
        EXCUSED,
        verdict=Verdict.WRONG,
        disagreement="a: wrong numbers",
        basis="",
        alone=("a",),
        wrong_alone={"w": "wrong numbers"},
    )
