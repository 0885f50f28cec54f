from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kintune.errors import JobFailed
from kintune_lab.experiment.experiment import ModelFacts

if TYPE_CHECKING:
    from tests.conftest import FakeFront
    from tests.support.command import Kintune

ROOT = Path(__file__).parents[3]
SPEC = 'name = "a"\nexperiment = "tune"\n[matrix]\nmodel = "zoo:resnet18"\nseed = [0, 1]\nminutes = 2\n'


@pytest.fixture(autouse=True)
def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """In an empty folder with a spec, where importing costs nothing; the models that were imported."""
    monkeypatch.chdir(tmp_path)
    Path("a.toml").write_text(SPEC)
    asked: list[str] = []

    def importer(models: list[str], say: object, places: object) -> dict[str, ModelFacts]:
        asked.extend(models)
        return {model: ModelFacts(20, 12, 1e9) for model in models}

    monkeypatch.setattr("kintune_lab.cli.bench.import_models", importer)
    return asked


def test_a_matrix_is_run_collected_and_reported(kintune: Kintune, fake_front: FakeFront) -> None:
    said = kintune("bench", "a.toml")
    assert said.code == 0
    assert said.out == (
        f"a: 2 of 2 cells done, {said.out.split('done, ')[1].split(' of')[0]} of measuring.\n"
        "The results are in bench-a, the report is bench-a/report.html\n"
    )
    assert "cell 2 of 2: model zoo:resnet18, seed 1, minutes 2.0" in said.err
    assert len(fake_front.requests) == 2
    written = {path.name for path in Path("bench-a").iterdir()}
    assert {"results.csv", "curve.csv", "stages.csv", "cells.csv", "report.html", "plots", "spec.toml"} <= written
    assert kintune("bench", "a.toml", "--quiet").err == ""
    assert len(fake_front.requests) == 2


def test_a_failed_cell_is_said_and_can_be_tried_again(kintune: Kintune, fake_front: FakeFront) -> None:
    good, fake_front.outcome = fake_front.outcome, JobFailed("nothing could be measured")
    said = kintune("bench", "a.toml", "--output", "out", "--quiet")
    assert said.code == 1
    assert "2 cells failed; --retry-failed runs them again" in said.out
    assert "seed 1, minutes 2.0: JobFailed: nothing could be measured" in said.out
    fake_front.outcome = good
    assert kintune("bench", "a.toml", "--output", "out", "--quiet").code == 1
    said = kintune("bench", "a.toml", "--output", "out", "--quiet", "--retry-failed", "--json", "-")
    assert said.code == 0
    document = json.loads(said.out)
    assert (document["schema_version"], document["done"], document["failed"]) == (1, 2, [])


def test_a_dry_run_lists_and_leaves_nothing(
    kintune: Kintune, fake_front: FakeFront, imported: list[str], tmp_path: Path
) -> None:
    said = kintune("bench", "a.toml", "--dry-run", "--quiet")
    assert said.code == 0
    lines = said.out.splitlines()
    assert lines[0].endswith("  model zoo:resnet18, seed 0, minutes 2.0 (about 2 min)")
    assert lines[-1] == "2 cells to run, about 4 min"
    assert imported == ["zoo:resnet18"]
    assert fake_front.requests == []
    assert [path.name for path in tmp_path.iterdir()] == ["a.toml"]


def test_a_report_alone_runs_nothing(kintune: Kintune, fake_front: FakeFront, imported: list[str]) -> None:
    kintune("bench", "a.toml", "--quiet")
    imported.clear()
    Path("bench-a/report.html").unlink()
    said = kintune("bench", "a.toml", "--report-only")
    assert said.code == 0
    assert Path("bench-a/report.html").exists()
    assert (len(fake_front.requests), imported) == (2, [])
    assert kintune("bench", "a.toml", "--report-only", "--output", "nowhere").code == 2
    assert not Path("nowhere").exists()


def test_ctrl_c_ends_it(kintune: Kintune, fake_front: FakeFront) -> None:
    fake_front.outcome = KeyboardInterrupt()
    assert kintune("bench", "a.toml", "--quiet").code == 130
    assert len(fake_front.requests) == 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("seed = [0, 1]", "seed = []"), "a.toml:5: seed = []: the list is empty"),
        (("seed", "sed"), "a.toml:5: the experiment 'tune' has no option 'sed'; did you mean 'seed'?"),
        (('"tune"', '"tuna"'), "a.toml:2: there is no experiment 'tuna'; did you mean 'tune'?"),
        (("zoo:resnet18", "resnet18"), 'a.toml:4: model = "resnet18": no such file; for the zoo\'s network write'),
        (("seed = [0", "seed = [0 "), "a.toml:5: this is not TOML"),
    ],
)
def test_a_spec_that_is_wrong_is_one_line_before_any_work(
    kintune: Kintune, fake_front: FakeFront, imported: list[str], tmp_path: Path, change: tuple[str, str], says: str
) -> None:
    Path("a.toml").write_text(SPEC.replace(*change).replace("0 , 1", "0 1"))
    said = kintune("bench", "a.toml")
    assert said.code == 2
    assert said.err.startswith(f"kintune: error: {says}")
    assert said.err.count("\n") == 1
    assert (fake_front.requests, imported) == ([], [])
    assert [path.name for path in tmp_path.iterdir()] == ["a.toml"]


@pytest.mark.parametrize(
    "arguments", [["--report-only", "--dry-run"], ["--json", "missing/a.json"], ["--output", "a.toml"]]
)
def test_arguments_that_cannot_be(kintune: Kintune, fake_front: FakeFront, arguments: list[str]) -> None:
    assert kintune("bench", "a.toml", *arguments).code == 2
    assert fake_front.requests == []
