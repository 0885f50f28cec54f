from __future__ import annotations

from pathlib import Path

import pytest

from kintune.core.config import Strategy
from kintune_lab.bench.experiments import race
from kintune_lab.bench.experiments.race import EXPERIMENT
from kintune_lab.bench.spec import BenchSpec, read_bench_spec
from kintune_lab.bench.strategy import strategy_of
from kintune_lab.experiment.experiment import CellProgress, ModelFacts
from kintune_lab.experiment.tables import Tables
from kintune_lab.race.run import RaceSpec
from kintune_lab.race.warm_start import TeachingPlan
from kintune_lab.spec_document import SpecError
from kintune_lab.tuners.messages import KintuneSpec, StockFamilySpec, StockSpec

REPOSITORY = Path(__file__).parents[4]

HEAD = 'name = "a"\nexperiment = "race"\n[matrix]\nmodel = "zoo:mobilenet_v2"\n'
STOCK = '[[method]]\nname = "stock"\n'
OURS = '[[method]]\nname = "kintune"\n'


def read(tmp_path: Path, text: str) -> BenchSpec:
    path = tmp_path / "spec.toml"
    path.write_text(text)
    return read_bench_spec(str(path))


def ignore(_: CellProgress) -> None:
    pass


def test_every_factor_of_a_search_can_be_set() -> None:
    options = EXPERIMENT.methods["kintune"]
    assert set(Strategy.__struct_fields__) <= set(options)
    assert strategy_of({name: option.default for name, option in options.items()}) == Strategy()


@pytest.mark.parametrize(
    "text",
    [HEAD + OURS, HEAD + STOCK, HEAD + STOCK + STOCK.replace("\n", "\nlabel = 'again'\n", 1) + OURS, HEAD],
)
def test_a_race_has_stock_once_and_somebody_else(tmp_path: Path, text: str) -> None:
    with pytest.raises(SpecError):
        read(tmp_path, text)


@pytest.mark.parametrize(
    "name",
    [
        "race_bert_base",
        "race_mobilenet_v1",
        "race_mobilenet_v2",
        "race_resnet50",
        "race_vit_base",
        "race_large",
        "race_paper",
        "race_quality",
        "ablation",
        "ideas_bert_base",
        "ideas_mobilenet_v2",
        "rounds_bert_base",
        "rounds_mobilenet_v2",
        "smoke_race",
    ],
)
def test_the_races_of_the_repository_can_be_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    spec = read_bench_spec(f"benchmarks/{name}.toml")
    assert spec.experiment is EXPERIMENT
    for cell in spec.cells:
        only_times_stock = name == "smoke_race" or name.startswith(("ideas", "rounds"))  # to know how long it takes
        assert only_times_stock or int(cell.values["trials_per_subgraph"] or 0) >= 128
        assert cell.methods[0].name == "stock"


def test_who_is_warm_needs_teachers(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"spec\.toml:9: knowledge.*teachers"):
        read(tmp_path, HEAD + STOCK + OURS + 'knowledge = "kin"\n')


def test_teachers_that_are_files_count_with_their_contents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    warm = STOCK + OURS + 'knowledge = "kin"\n'
    text = HEAD + 'teachers = "zoo:resnet18, net.onnx"\n' + warm
    cells = []
    for content in (b"one", b"two", b"one"):
        (tmp_path / "net.onnx").write_bytes(content)
        cells.append(read(tmp_path, text).cells[0])
    assert cells[0].id == cells[2].id != cells[1].id
    taught: list[TeachingPlan] = []

    def teach(plan: TeachingPlan, *_: object) -> Path:
        taught.append(plan)
        return tmp_path

    monkeypatch.setattr(race, "tune_teachers", teach)
    monkeypatch.setattr(race, "run_race", lambda *_: {"results": []})
    for cell in cells:
        EXPERIMENT.run(cell, tmp_path / "cells" / cell.id / "files", ignore)
    assert taught[0].id == taught[2].id != taught[1].id
    (of_the_zoo,) = read(tmp_path, HEAD + 'teachers = "zoo:resnet18"\n' + warm).cells
    assert of_the_zoo.contents == {}


def test_nobody_is_no_teacher(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"knowledge.*teachers"):
        read(tmp_path, HEAD + 'teachers = " , "\n' + STOCK + OURS + 'knowledge = "kin"\n')


def test_an_unknown_teacher_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="nothing_like_it"):
        read(tmp_path, HEAD + 'teachers = "zoo:resnet18, zoo:nothing_like_it"\n' + STOCK + OURS)


def test_stock_cannot_be_told_anything(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="families"):
        read(tmp_path, HEAD + STOCK + 'families = "op"\n' + OURS)


def test_the_time_it_takes_grows_with_trials_and_rivals(tmp_path: Path) -> None:
    facts = {"zoo:mobilenet_v2": ModelFacts(34, 32, 6e8)}
    (two,) = read(tmp_path, HEAD + STOCK + OURS).cells
    (three,) = read(tmp_path, HEAD + STOCK + OURS + 'families = ["none", "op"]\n').cells
    assert EXPERIMENT.seconds(two, {}) is None
    short, long = EXPERIMENT.seconds(two, facts), EXPERIMENT.seconds(three, facts)
    assert short is not None
    assert long is not None
    assert 128 * 34 < short < long


def test_a_cell_becomes_a_race(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raced: list[RaceSpec] = []

    def run_race(spec: RaceSpec, directory: Path, turns: Path, show: object, between_turns: object) -> Tables:
        raced.append(spec)
        return {"results": []}

    monkeypatch.setattr(race, "run_race", run_race)
    text = HEAD + "seed = 3\nthreads = 1\n" + OURS + 'round_size = 8\nfamilies = "none"\n' + STOCK
    text += '[[method]]\nname = "stock_family"\nforesee = "published"\nbudget_ratio = 0.25\n'
    (cell,) = read(tmp_path, text).cells
    EXPERIMENT.run(cell, tmp_path / "cells" / cell.id / "files", ignore)
    turns = tmp_path / "turns" / f"{cell.id}.msgpack"
    turns.touch()  # as a race leaves them
    for _ in range(2):
        EXPERIMENT.settled(cell, tmp_path / "cells" / cell.id / "files")
        assert not turns.exists()
    (spec,) = raced
    stock, *others = spec.tuners.values()
    assert stock == StockSpec(128)
    assert KintuneSpec(Strategy(families="none", round_size=8)) in others
    assert StockFamilySpec(128, "op", "published") in others
    assert (spec.seed, spec.threads, spec.budgets) == (3, 1, {"kintune": 1.0, "stock_family": 0.25})
    assert spec.warm_starts == {}


def test_the_report_has_the_ratios(tmp_path: Path) -> None:
    rows = [
        {"cell": "1", "model": "m", "seed": 0, "method": name, "time_ratio": ratio, "quality_ratio": ratio}
        for name, ratio in (("stock", 1.0), ("kintune", 2.0))
    ]
    sections = EXPERIMENT.report({"results": rows, "curve": [], "stages": []})
    assert sections[0].title == "Against stock"
    assert any("kintune" in row for row in sections[0].grids[0].rows)
