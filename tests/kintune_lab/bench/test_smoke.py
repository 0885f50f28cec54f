"""The bench that CI runs for real: from the spec in `benchmarks/` to the report."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from kintune.cli import main

REPOSITORY = Path(__file__).parents[3]
SMOKE = "benchmarks/smoke.toml"


@pytest.mark.tvm
def test_the_smoke_bench_runs_from_the_spec_to_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)  # the spec names a model of the repository
    output = tmp_path / "out"
    document = tmp_path / "summary.json"
    assert main(["bench", SMOKE, "--output", str(output), "--quiet", "--json", str(document)]) == 0
    summary = json.loads(document.read_text())
    assert summary["done"] == summary["cells"] > 1
    with (output / "results.csv").open(newline="") as file:
        results = list(csv.DictReader(file))
    assert {row["cell"] for row in results} == {path.name for path in (output / "cells").iterdir()}
    with (output / "curve.csv").open(newline="") as file:
        assert {row["cell"] for row in csv.DictReader(file)} == {row["cell"] for row in results}
    assert (output / "report.html").read_text().count("<figure") >= 3
    assert main(["bench", SMOKE, "--output", str(output), "--quiet"]) == 0
