"""Tuning within an error budget, by the real command; on a CPU without narrow instructions all of it stays in fp32."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from kintune.runtime.package import read_manifest

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
