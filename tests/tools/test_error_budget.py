"""The script that tries how well an error budget holds."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_a_seed_that_was_run_with_other_options_is_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")  # the script finds its neighbours there
    from benchmarks import error_budget

    runs: list[float] = []

    def tune(model: str, minutes: float, folder: Path, *_: str) -> dict[str, object]:
        runs.append(minutes)
        (folder / "model.kt").touch()
        return {"norm_error": 0.001, "subgraphs": [{"precision": "bf16"}], "kept_tensors": 0}

    monkeypatch.setattr(error_budget, "tune", tune)
    monkeypatch.setattr(error_budget, "unseen_error", lambda options, file, seed: options.minutes)
    options = argparse.Namespace(model="zoo:a", minutes=0.5, max_error=0.01, inputs=8, out=tmp_path)
    longer = argparse.Namespace(**{**vars(options), "minutes": 1.0})
    rows = [error_budget.one_seed(each, 0) for each in (options, options, longer, longer)]
    assert [row["unseen"] for row in rows] == [0.5, 0.5, 1.0, 1.0]
    assert rows[0] == rows[1]
    assert runs == [0.5, 1.0]
