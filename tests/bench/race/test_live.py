"""A whole race with real processes, on a network of one layer; only the builder starts no processes of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kintune.bench.experiment import CellProgress
from kintune.bench.race.live import RaceSpec, run_race, without_torch
from kintune.bench.tables import Tables, check_tables
from kintune.errors import EngineError
from kintune.integrations.contest.orders import Ours, Stock, StockFamily, Tuner
from kintune.models.ref import parse_ref
from kintune.search.strategy import Strategy

pytestmark = pytest.mark.tvm

NETWORK = Path(__file__).parents[3] / "benchmarks/one_layer.onnx"

QUICK = "kintune.testing.quick_contestant"


def spec_of(tuners: dict[str, Tuner]) -> RaceSpec:
    return RaceSpec(
        parse_ref(str(NETWORK)), tuners, threads=1, seed=0, budgets=dict.fromkeys(tuners, 0.5), passes=2, rounds=6
    )


def test_a_race_is_run_judged_and_reckoned(tmp_path: Path) -> None:
    tuners: dict[str, Tuner] = {
        "stock": Stock(8),
        "family": StockFamily(8, "op", "published"),
        "kintune": Ours(Strategy(round_size=8, foresee_size=4)),
    }
    shown: list[CellProgress] = []
    tables: Tables = run_race(spec_of(tuners), tmp_path, tmp_path / "turns", shown.append, contestant=QUICK)
    check_tables(tables)
    results = {row["method"]: row for row in tables["results"]}
    assert list(results) == ["stock", "family", "kintune"]
    for row in results.values():
        assert (row["altered"], row["rejected"]) == (0, 0)
        assert isinstance(row["trials"], int)
        assert row["trials"] > 0
        assert isinstance(row["judged_ms"], float)
        assert 0 < row["judged_ms"] < float("inf")
    assert results["stock"]["finished"]
    assert all(row["status"] == "ok" and row["as_built"] for row in tables["judgements"])
    assert {row["runs"] for row in tables["networks"] if row["method"] != "untuned"} == {30}
    assert not any(row["problem"] for row in tables["networks"])
    assert shown[-1].phase == "timing whole networks"
    assert not list(tmp_path.glob("network-*"))


def test_a_contestant_that_dies_ends_the_race(tmp_path: Path) -> None:
    tuners: dict[str, Tuner] = {"stock": Stock(8), "kintune": Ours(Strategy(families="unheard of"))}
    with pytest.raises(EngineError, match=r"kintune: .*unheard of"):
        run_race(spec_of(tuners), tmp_path, tmp_path / "turns", lambda progress: None, contestant=QUICK)


def test_a_race_finds_no_torch(tmp_path: Path) -> None:
    environment = {**os.environ, **without_torch(tmp_path / "hidden")}
    said = subprocess.run([sys.executable, "-c", "import torch"], env=environment, capture_output=True, text=True)
    assert said.returncode == 1
    assert "takes no part in a race" in said.stderr
