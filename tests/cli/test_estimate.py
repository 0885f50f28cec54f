from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from kintune.cli import estimate as module
from kintune.core.device import Peak
from kintune.core.report import FastestBaseline
from kintune.tuning.estimation import Estimate, KnownDevice
from kintune.tuning.forecast import Forecast

if TYPE_CHECKING:
    from tests.support.command import Kintune

ESTIMATE = Estimate(
    model="resnet18",
    model_digest="d" * 32,
    subgraphs=21,
    tunable=17,
    flops=3.63e9,
    weight_bytes=46_800_000,
    target="{}",
    threads=2,
    peak=Peak(400.0, 20.0, 2),
    bound_ms=9.08,
    known=KnownDevice(),
    trials=1000,
    seconds=500.0,
    judged_by_runs=False,
)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What is estimated, under "answer", and what was asked, under "asked"."""
    held: dict[str, Any] = {"answer": ESTIMATE}

    def estimate_model(ref: object, **asked: object) -> Estimate:
        held["asked"] = asked
        answer: Estimate = held["answer"]
        return answer

    monkeypatch.setattr(module, "estimate_model", estimate_model)
    return held


def test_a_first_estimate_says_what_it_rests_on(kintune: Kintune, answers: dict[str, Any]) -> None:
    said = kintune("estimate", "zoo:resnet18")
    assert said.out.splitlines() == [
        "resnet18: 3.63 GFLOP a run, 46.8 MB of weights; 21 distinct subgraphs, 17 of them worth tuning",
        "With 2 threads this machine does 400 GFLOP and reads 20.0 GB a second, so no program takes less than 9.08 ms",
        "The records have no measurements of its subgraphs yet",
        "1000 trials take about 8 min (a rough guess, since there is no past run)",
    ]


def test_the_time_of_other_runtimes_is_said(kintune: Kintune, answers: dict[str, Any]) -> None:
    answers["answer"] = msgspec.structs.replace(ESTIMATE, baseline_seconds=9.0)
    assert "1000 trials take about 8 min, 9 s of it for other runtimes (" in kintune("estimate", "zoo:resnet18").out


def test_what_records_give_is_said(kintune: Kintune, answers: dict[str, Any]) -> None:
    answers["answer"] = msgspec.structs.replace(ESTIMATE, known=KnownDevice(17, 900, 15.2), judged_by_runs=True)
    out = kintune("estimate", "zoo:resnet18").out
    assert "900 programs for 17 of the 21 subgraphs; with the best, about 15.2 ms\n" in out
    assert "(from past runs)" in out


def test_the_document_is_the_estimate(kintune: Kintune, answers: dict[str, Any]) -> None:
    said = kintune("estimate", "zoo:resnet18", "--trials", 64, "--threads", 1, "--json", "-")
    document = json.loads(said.out)
    assert (document["schema_version"], document["flops"], document["peak"]["gflops"]) == (1, 3.63e9, 400.0)
    assert (answers["asked"]["trials"], answers["asked"]["threads"]) == (64, 1)


@pytest.mark.parametrize(
    "arguments", [["zoo:none"], ["zoo:resnet18", "--trials", "0"], ["zoo:resnet18", "--threads", "0"]]
)
def test_wrong_input_is_one_line(kintune: Kintune, answers: dict[str, Any], arguments: list[str]) -> None:
    said = kintune("estimate", *arguments)
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "asked" not in answers


def test_of_several_shapes_one_run_with_each_is_said(kintune: Kintune, answers: dict[str, Any]) -> None:
    answers["answer"] = msgspec.structs.replace(ESTIMATE, combinations=3)
    first = kintune("estimate", "zoo:resnet18").out.splitlines()[0]
    assert first.startswith(
        "resnet18: 3.63 GFLOP for one run with each of 3 combinations of shapes, 46.8 MB of weights"
    )


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (10.0, 12.5, "it will likely take 10.0 ms to 12.5 ms, 1.20x to 1.50x as fast (from 34 subgraphs tuned"),
        (12.5, 30.0, "0.50x to 1.20x as fast (from 34 subgraphs tuned here before); a gain is uncertain"),
        (15.0, 30.0, "0.50x to 1.00x as fast (from 34 subgraphs tuned here before); a gain is unlikely"),
    ],
)
def test_the_likely_gain_is_foretold(
    kintune: Kintune, answers: dict[str, Any], low: float, high: float, said: str
) -> None:
    foretold = Forecast(low, high, 34, FastestBaseline("onnxruntime", 15.0))
    answers["answer"] = msgspec.structs.replace(ESTIMATE, forecast=foretold)
    line = kintune("estimate", "zoo:resnet18").out.splitlines()[3]
    assert line.startswith("onnxruntime takes 15.0 ms; tuned, ")
    assert said in line


def test_without_a_baseline_the_latency_is_foretold(kintune: Kintune, answers: dict[str, Any]) -> None:
    answers["answer"] = msgspec.structs.replace(ESTIMATE, forecast=Forecast(10.0, 20.0, 0))
    line = kintune("estimate", "zoo:resnet18").out.splitlines()[3]
    assert line == "Tuned, it will likely take 10.0 ms to 20.0 ms (a rough guess, since nothing was tuned here before)"


def test_a_baseline_that_was_disturbed_foretells_nothing_for_certain(kintune: Kintune, answers: dict[str, Any]) -> None:
    foretold = Forecast(10.0, 12.0, 34, FastestBaseline("onnxruntime", 60.0), spread=2.0)
    answers["answer"] = msgspec.structs.replace(ESTIMATE, forecast=foretold)
    line = kintune("estimate", "zoo:resnet18").out.splitlines()[3]
    assert line.endswith("; other programs use the cores, so this is uncertain")
