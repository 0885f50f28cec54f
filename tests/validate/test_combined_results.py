"""What validations of several combinations of shapes say together."""

from __future__ import annotations

import msgspec

from kintune.core.stage_results import ValidationResult
from kintune.core.verdict import Verdict
from kintune.validate.combined_results import combined

SHAPES = [{"x": (1, 3)}, {"x": (2, 3)}]

FIRST = ValidationResult(
    latency_ms={"tuned": (1.0, 2.0), "untuned": (9.0,)},
    max_abs_error=0.1,
    max_rel_error=0.2,
    verdict=Verdict.RIGHT,
    compared_with=("onnxruntime", "untuned"),
    skipped={"torch": "is not installed", "openvino": "fails"},
    noise=0.3,
    basis="of the first",
    alone=("conv",),
    not_alone={"a": "takes long"},
    wrong_alone={"w": "is off"},
    thread_counts=({1: 1},),
    norm_error=0.4,
    score=0.9,
    beside_ms=((1.0, 2.0), (3.0, 4.0)),
    rounds_ms={"tuned": (1.5,)},
    once_ms={"tuned": 7.0},
    notes=("one", "both"),
    not_compared=("output 'y': no numbers",),
    bound="bound of the first",
    extremes=("zeros", "ones"),
)
SECOND = ValidationResult(
    latency_ms={"tuned": (10.0, 20.0)},
    max_abs_error=0.01,
    max_rel_error=0.02,
    verdict=Verdict.RIGHT,
    compared_with=("untuned", "torch"),
    skipped={"torch": "is not installed", "openvino": "hangs"},
    noise=0.03,
    basis="of the second",
    alone=("dense", "conv"),
    not_alone={"b": "takes long, too"},
    norm_error=0.04,
    score=0.8,
    beside_ms=((10.0, 20.0), (30.0, 40.0)),
    rounds_ms={"tuned": (15.0,)},
    once_ms={"tuned": 70.0},
    notes=("both", "two"),
    not_compared=("output 'z': no numbers",),
    bound="bound of the second",
    doubtful="of the second",
    extremes=("ones",),
)


def together(*results: ValidationResult) -> ValidationResult:
    return combined(SHAPES, results)


def test_several_combinations_are_as_far_off_as_the_worst_and_take_as_long_as_all() -> None:
    found = together(FIRST, SECOND)
    assert found == ValidationResult(
        latency_ms={"tuned": (11.0, 22.0)},
        max_abs_error=0.1,
        max_rel_error=0.2,
        verdict=Verdict.RIGHT,
        compared_with=("onnxruntime", "untuned", "torch"),
        skipped={"torch": "is not installed", "openvino": "fails (with x=1x3)"},
        noise=0.3,
        basis="of the first",
        alone=("conv", "dense"),
        not_alone={"a": "takes long", "b": "takes long, too"},
        wrong_alone={"w": "is off"},
        thread_counts=({1: 1}, {}),
        each=(FIRST, SECOND),
        norm_error=0.4,
        score=0.8,
        beside_ms=((11.0, 22.0), (33.0, 44.0)),
        rounds_ms={"tuned": (16.5,)},
        once_ms={"tuned": 7.0},
        notes=("one", "both", "two"),
        not_compared=("output 'y': no numbers (with x=1x3)", "output 'z': no numbers (with x=2x3)"),
        bound="bound of the first",
        doubtful="of the second",
        extremes=("ones",),
    )
    turned = together(SECOND, FIRST)
    assert (turned.max_abs_error, turned.max_rel_error, turned.noise, turned.norm_error) == (0.1, 0.2, 0.3, 0.4)
    assert (turned.score, turned.once_ms, turned.basis) == (0.8, {"tuned": 70.0}, "of the second")
    assert turned.thread_counts == ({}, {1: 1})
    assert turned.extremes == ("ones",)


def test_what_was_not_looked_at_with_any_shapes_is_not_known() -> None:
    bare = ValidationResult({}, None, None, Verdict.NOT_COMPARED, (), {})
    found = together(bare, bare)
    assert found == msgspec.structs.replace(bare, each=(bare, bare))
    wrong = msgspec.structs.replace(SECOND, disagreement="output 'y' differs", verdict=Verdict.WRONG)
    assert together(bare, wrong).disagreement == "output 'y' differs"
    assert together(wrong, bare).verdict is Verdict.WRONG
    assert together(bare, SECOND).max_abs_error == 0.01
    assert together(bare, SECOND).beside_ms == ()


def test_a_result_keeps_the_plans_that_are_not_handed_over() -> None:
    handed_over = msgspec.structs.replace(SECOND, regions=(), lost_ms=(5.0, 6.0))
    found = together(FIRST, handed_over)
    assert (found.plans, found.regions, found.lost_ms) == ((0,), None, ())
    assert together(handed_over, FIRST).plans == (1,)
    found = together(handed_over, handed_over)
    assert (found.plans, found.regions, found.lost_ms) == ((), (), (10.0, 12.0))


def test_the_first_set_that_was_wrong_is_named() -> None:
    wrong = msgspec.structs.replace(SECOND, wrong_on="zeros")
    assert together(FIRST, wrong).wrong_on == "zeros"
    assert together(FIRST, SECOND).wrong_on == ""


def test_what_regions_have_lost_counts_where_none_is_kept() -> None:
    lost = [msgspec.structs.replace(each, regions=(), lost_ms=(1.0, 2.0)) for each in (FIRST, SECOND)]
    assert together(*lost).lost_ms == (2.0, 4.0)
    assert together(lost[0], msgspec.structs.replace(lost[1], regions=None)).lost_ms == ()
