"""Tuning within an error budget, by the real command; on a CPU without narrow instructions all of it stays in fp32."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from kintune.runtime.package import read_manifest
from tests.support.quantisable import write_inputs, write_network

if TYPE_CHECKING:
    from tests.acceptance.conftest import Place

pytestmark = [pytest.mark.tvm, pytest.mark.slow]

METRIC = """
import numpy as np

def score(run, held_back):
    rng = np.random.default_rng(int(held_back))
    inputs = rng.standard_normal((8, 1, 16, 16, 16), np.float32)
    return -float(np.mean([np.square(run({"x": x})["y"]).mean() for x in inputs]))
"""


def report_of(place: Place) -> dict[str, object]:
    report: dict[str, object] = json.loads((place.folder / "report.json").read_text())
    return report


def test_a_result_says_what_computes_in_what_and_with_what_error(empty_place: Place) -> None:
    samples = empty_place.folder / "samples"
    samples.mkdir()
    for number in range(4):
        values = np.random.default_rng(number).standard_normal((1, 16, 16, 16), np.float32)
        np.savez(samples / f"{number}.npz", x=values)
    command = empty_place.tune(
        "--trials", 12, "--precision", "auto", "--input", samples, "--json", "report.json", "--output", "small.kt"
    )
    assert command.wait() == 0, command.err
    report = report_of(empty_place)
    narrow = {each["name"] for each in report["subgraphs"] if each["precision"] != "fp32"}  # type: ignore[attr-defined]
    manifest = read_manifest(empty_place.folder / "small.kt")
    assert (manifest.narrow is not None) == bool(narrow)
    if narrow:
        assert report["norm_error"] <= report["options"]["max_error"]  # type: ignore[index,operator]
        assert report["held_back"] == 2
        assert "in bf16" in command.out
        assert manifest.narrow is not None
        assert manifest.narrow.error == pytest.approx(report["norm_error"])
        assert manifest.narrow.kept_tensors == report["kept_tensors"]
    else:
        assert "All of it computes in the model's own types" in command.out


def test_a_score_of_the_user_s_own_decides(empty_place: Place) -> None:
    Path(empty_place.folder, "metric.py").write_text(METRIC)
    command = empty_place.tune(
        "--trials", 12, "--precision", "auto", "--metric", "metric.py:score", "--max-drop", 0.05,
        "--json", "report.json",
    )  # fmt: skip
    assert command.wait() == 0, command.err
    report = report_of(empty_place)
    if any(each["precision"] != "fp32" for each in report["subgraphs"]):  # type: ignore[attr-defined]
        assert "Its score by metric.py:score is" in command.out


def test_a_model_is_quantised_with_inputs_of_the_user(empty_place: Place) -> None:
    write_network(empty_place.model)
    write_inputs(empty_place.folder / "samples", 4)
    command = empty_place.tune(
        "--trials", 12, "--precision", "auto", "--calibrate", "samples", "--max-error", 0.1,
        "--json", "report.json", "--output", "small.kt",
    )  # fmt: skip
    assert command.wait() == 0, command.err
    report = report_of(empty_place)
    quantised: Any = report["quantised"]
    narrow = read_manifest(empty_place.folder / "small.kt").narrow
    if quantised is None:
        assert "The model was not quantised: this processor has no instructions for products of bytes" in command.out
        return
    assert (quantised["products"], quantised["int8"], quantised["held_back"]) == (4, 4, 2)
    assert 0 < quantised["error"] < 0.1
    assert report["norm_error"] == pytest.approx(quantised["error"], rel=0.5)
    assert "Of 4 convolutions and products, 4 in int8" in command.out
    assert "int8" in {each["precision"] for each in report["subgraphs"]}  # type: ignore[attr-defined]
    assert narrow is not None
    assert narrow.quantised is not None
    assert narrow.quantised.int8 == 4
    assert not list(empty_place.folder.glob("*.int8.onnx*"))
    evaluated = empty_place.start("evaluate", "small.kt")
    assert evaluated.wait() == 0
    assert "4 of 4 products in int8" in evaluated.out


def test_a_calibration_file_that_does_not_fit_ends_the_command_at_once(empty_place: Place) -> None:
    np.savez(empty_place.folder / "wrong.npz", pixels=np.zeros(3, np.float32))
    command = empty_place.tune("--trials", 12, "--precision", "auto", "--calibrate", "wrong.npz", "--quiet")
    assert command.wait() == 2
    assert "wrong.npz" in command.err
    assert len(command.err.strip().splitlines()) == 1


def test_a_score_decides_which_layers_are_quantised(empty_place: Place) -> None:
    write_network(empty_place.model)
    write_inputs(empty_place.folder / "samples", 4)
    Path(empty_place.folder, "metric.py").write_text(METRIC.replace("(8, 1, 16, 16, 16)", "(8, 1, 3, 16, 16)"))
    command = empty_place.tune(
        "--trials", 4, "--precision", "auto", "--calibrate", "samples", "--metric", "metric.py:score",
        "--max-drop", 0.05, "--json", "report.json",
    )  # fmt: skip
    assert command.wait() == 0, command.err
    report: Any = report_of(empty_place)
    if report["quantised"] is None:
        assert "The model was not quantised: this processor has no instructions for products of bytes" in command.out
        return
    assert report["quantised"]["int8"] == 4
    assert report["options"]["metric"]["reference"] - report["score"] <= 0.05
    assert "Its score by metric.py:score is" in command.out


def compiled(place: Place, *options: object) -> Any:
    """The report of a compilation, whose result runs."""
    command = place.start("compile", place.model, "--json", "report.json", "--output", "small.kt", *options)
    assert command.wait() == 0, command.err
    report: Any = report_of(place)
    assert (report["reason"], report["trials"]) == ("compiled", 0)
    assert "compiled, " in command.out
    assert "its error measured" in command.out
    assert not list(place.folder.glob("small.kt.*"))
    assert place.start("evaluate", "small.kt", "--repeats", 3).wait() == 0
    return report


def test_what_is_only_compiled_may_be_narrow_as_well(empty_place: Place) -> None:
    write_network(empty_place.model)
    report = compiled(empty_place, "--precision", "auto")
    narrow = {each["name"] for each in report["subgraphs"] if each["precision"] != "fp32"}
    manifest = read_manifest(empty_place.folder / "small.kt")
    assert (manifest.narrow is not None) == bool(narrow)
    if narrow:
        assert report["norm_error"] <= report["options"]["max_error"]
        assert report["held_back"] == 4


def test_what_is_only_compiled_may_be_quantised_as_well(empty_place: Place) -> None:
    write_network(empty_place.model)
    write_inputs(empty_place.folder / "samples", 4)
    report = compiled(empty_place, "--precision", "auto", "--calibrate", "samples", "--max-error", 0.1)
    if report["quantised"] is not None:
        assert report["quantised"]["int8"] == 4
        assert 0 < report["norm_error"] < 0.1
