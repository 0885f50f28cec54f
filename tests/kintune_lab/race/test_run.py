"""A whole race with real processes, on a network of one layer; only the builder starts no processes of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from kintune.core.candidate import Candidate
from kintune.core.config import Strategy
from kintune.core.outcome import Status
from kintune.errors import EngineError, KintuneError
from kintune.models.ref import parse_ref
from kintune_lab.experiment.experiment import CellProgress
from kintune_lab.experiment.tables import Tables, check_tables
from kintune_lab.race import run
from kintune_lab.race.remeasurement import Remeasurement, best_programs_of
from kintune_lab.race.run import RaceSpec, run_race, without_torch
from kintune_lab.race.turn_scheduler import RaceRecord
from kintune_lab.tuners.messages import KintuneSpec, StockFamilySpec, StockSpec, TunerSpec
from tests.support.scripted_tuner import ScriptedTurn

pytestmark = pytest.mark.tvm

NETWORK = Path(__file__).parents[3] / "benchmarks/one_layer.onnx"

QUICK = "tests.support.quick_tuner"


def spec_of(tuners: dict[str, TunerSpec]) -> RaceSpec:
    return RaceSpec(
        parse_ref(str(NETWORK)), tuners, threads=1, seed=0, budgets=dict.fromkeys(tuners, 0.5), passes=2, rounds=6
    )


TUNERS: dict[str, TunerSpec] = {
    "stock": StockSpec(8),
    "family": StockFamilySpec(8, "op", "published"),
    "kintune": KintuneSpec(Strategy(round_size=8, foresee_size=4)),
}


@pytest.mark.parametrize("names", [("stock", "kintune"), pytest.param(tuple(TUNERS), marks=pytest.mark.slow)])
def test_a_race_is_run_judged_and_reckoned(names: tuple[str, ...], tmp_path: Path) -> None:
    tuners = {name: TUNERS[name] for name in names}
    shown: list[CellProgress] = []
    tables: Tables = run_race(spec_of(tuners), tmp_path, tmp_path / "turns", shown.append, tuner_module=QUICK)
    check_tables(tables)
    results = {row["method"]: row for row in tables["results"]}
    assert list(results) == list(names)
    for row in results.values():
        assert (row["altered"], row["rejected"]) == (0, 0)
        assert isinstance(row["trials"], int)
        assert row["trials"] > 0
        assert isinstance(row["judged_ms"], float)
        assert 0 < row["judged_ms"] < float("inf")
    assert results["stock"]["finished"]
    assert all(row["status"] == "ok" and row["as_built"] for row in tables["judgements"])
    assert {row["runs"] for row in tables["networks"] if row["method"] != "untuned"} == {30}
    (untuned,) = (row for row in tables["networks"] if row["method"] == "untuned")
    assert (untuned["runs"], untuned["median_ms"]) == (0, None)
    assert not any(row["problem"] for row in tables["networks"])
    assert shown[-1].phase == "timing whole networks"
    assert not list(tmp_path.glob("network-*"))
    assert (tmp_path / "turns").exists()  # until the tables are written


def test_what_cannot_be_compared_is_judged_again_until_its_turns_are_removed(
    run_turns: Callable[..., RaceRecord], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raced = run_turns([ScriptedTurn(10)], [ScriptedTurn(10)])

    def remeasured(record: RaceRecord, *_: object) -> dict[Candidate, Remeasurement]:
        programs = [c for tuners in best_programs_of(record).values() for found in tuners.values() for c in found]
        return {program: Remeasurement(program, (1.0,), Status.OK) for program in programs}

    monkeypatch.setattr(run, "_run_turns", lambda *_: run._Raced(raced, 1))
    monkeypatch.setattr(run, "LocalMeasurementWorkers", lambda *_: nullcontext())
    monkeypatch.setattr(run, "remeasure", remeasured)
    turns = tmp_path / "turns"
    spec = spec_of({"stock": StockSpec(8), "kintune": KintuneSpec(Strategy())})
    with pytest.raises(KintuneError, match=rf"found nothing .*--retry-failed judges again, .* {turns} was removed"):
        run_race(spec, tmp_path, turns, lambda progress: None)
    monkeypatch.setattr(run, "_run_turns", lambda *_: pytest.fail("raced again"))
    with pytest.raises(KintuneError, match="found nothing"):
        run_race(spec, tmp_path, turns, lambda progress: None)


def test_turns_of_another_version_are_not_judged(tmp_path: Path) -> None:
    turns = tmp_path / "turns"
    turns.write_bytes(b"\x80")
    with pytest.raises(KintuneError, match=rf"{turns} is not from this version of Kintune .*; remove it to race again"):
        run_race(spec_of({"stock": StockSpec(8)}), tmp_path, turns, lambda progress: None)
    assert turns.exists()


@pytest.mark.slow
def test_a_contestant_that_dies_ends_the_race(tmp_path: Path) -> None:
    tuners: dict[str, TunerSpec] = {"stock": StockSpec(8), "kintune": KintuneSpec(Strategy(families="unheard of"))}
    with pytest.raises(EngineError, match=r"kintune: .*unheard of"):
        run_race(spec_of(tuners), tmp_path, tmp_path / "turns", lambda progress: None, tuner_module=QUICK)


@pytest.mark.may_use("torch")
def test_a_race_finds_no_torch(tmp_path: Path) -> None:
    environment = {**os.environ, **without_torch(tmp_path / "hidden")}
    said = subprocess.run([sys.executable, "-c", "import torch"], env=environment, capture_output=True, text=True)
    assert said.returncode == 1
    assert "takes no part in a race" in said.stderr
