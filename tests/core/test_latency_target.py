from __future__ import annotations

import math

import pytest

from kintune.core.latency_target import LatencyTarget, parse_target
from kintune.errors import InputError

TIMES = {"onnxruntime": 2.0, "openvino": 1.5, "untuned": 40.0}


@pytest.mark.parametrize(
    ("written", "target", "text", "milliseconds"),
    [
        ("2.5", LatencyTarget(ms=2.5), "2.5", 2.5),
        ("2.5ms", LatencyTarget(ms=2.5), "2.5", 2.5),
        (" 2.5 ms ", LatencyTarget(ms=2.5), "2.5", 2.5),
        (8, LatencyTarget(ms=8.0), "8", 8.0),
        ("8.1234567", LatencyTarget(ms=8.1234567), "8.1234567", 8.1234567),
        ("onnxruntime", LatencyTarget(baseline="onnxruntime"), "onnxruntime", 2.0),
        ("OpenVINO * 0.8", LatencyTarget(baseline="openvino", factor=0.8), "openvino*0.8", 1.2),
        ("fastest*0.5", LatencyTarget(baseline="fastest", factor=0.5), "fastest*0.5", 0.75),
        ("untuned*0.1", LatencyTarget(baseline="untuned", factor=0.1), "untuned*0.1", 4.0),
        ("torch*2", LatencyTarget(baseline="torch", factor=2.0), "torch*2", None),
    ],
)
def test_what_users_write(written: str | float, target: LatencyTarget, text: str, milliseconds: float | None) -> None:
    assert parse_target(written) == target
    assert str(target) == text
    assert parse_target(text) == target
    found = target.milliseconds(TIMES)
    assert found == (None if milliseconds is None else pytest.approx(milliseconds))


def test_it_is_described_in_words() -> None:
    assert [parse_target(text).described for text in ("5ms", "fastest", "untuned*0.1")] == [
        "5 ms", "fastest", "0.1 of untuned",
    ]  # fmt: skip


@pytest.mark.parametrize("written", ["", "ms", "*0.8", "0.8*openvino", "onnxruntime*", "onnxruntime*x", "5us", "a b"])
def test_what_cannot_be_read(written: str) -> None:
    with pytest.raises(InputError, match="until"):
        parse_target(written)


@pytest.mark.parametrize(
    "written", ["0", "-1", "nan", "inf", "1e999", math.nan, "openvino*0", "openvino*-2", "torch*nan"]
)
def test_numbers_are_above_0(written: str | float) -> None:
    with pytest.raises(InputError, match="must be more than 0"):
        parse_target(written)


def test_an_unknown_baseline_is_told_with_those_that_there_are() -> None:
    with pytest.raises(InputError, match=r"no baseline 'tensorrt'.*onnxruntime, openvino, torch, fastest and untuned"):
        parse_target("tensorrt*0.8")


def test_an_infinite_time_is_not_known() -> None:
    assert parse_target("untuned").milliseconds({"untuned": math.inf}) is None
    assert parse_target("fastest").milliseconds({"untuned": 1.0}) is None
    assert parse_target("fastest").milliseconds({"openvino": math.inf, "torch": 3.0}) == 3.0


def test_only_other_runtimes_must_be_timed_first() -> None:
    assert [parse_target(text).needs_baselines for text in ("5", "untuned", "fastest", "torch*2")] == [
        False, False, True, True,
    ]  # fmt: skip
