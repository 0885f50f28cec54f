from __future__ import annotations

from pathlib import Path

import pytest

from kintune.errors import InputError
from kintune_lab.bench.experiments.replay import EXPERIMENT
from kintune_lab.experiment.experiment import Cell, Method
from kintune_lab.experiment.option import Value
from kintune_lab.experiment.section import LineChart
from kintune_lab.experiment.tables import Tables, check_tables, joined
from kintune_lab.pools.pool import save_pool
from tests.support.synthetic_pool import synthetic_pool


def search(label: str, **changed: Value) -> Method:
    options = EXPERIMENT.methods["search"]
    values: dict[str, Value | None] = {name: option.default for name, option in options.items()}
    return Method("search", label, {**values, "round_size": 8, "foresee_size": 4, **changed})


def cell(*methods: Method, **values: Value) -> Cell:
    defaults: dict[str, Value | None] = {name: option.default for name, option in EXPERIMENT.options.items()}
    return Cell("replay", 1, {**defaults, "model": "synthetic", **values}, {}, methods)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """What a cell with two strategies yields, as the report sees it."""
    path = tmp_path_factory.mktemp("pools") / "pool.npz"
    save_pool(path, synthetic_pool(48))
    methods = search("one", families="none", foresee="none"), search("kin", families="op", foresee="published")
    asked = cell(*methods, pool=str(path), samples=48, runs=3)
    found = EXPERIMENT.run(asked, path.parent, lambda _: None)
    check_tables(found)
    return {name: joined(rows, asked.id, asked.values) for name, rows in found.items()}


def test_each_strategy_is_played_with_each_seed_on_half_of_the_pool(tables: Tables) -> None:
    assert {(row["method"], row["run"]) for row in tables["replay"]} == {
        (m, r) for m in ("one", "kin") for r in range(3)
    }
    assert max(int(row["trials"] or 0) for row in tables["replay"]) <= 72
    assert all(0 <= float(row["quality"] or 0) <= 1 for row in tables["replay"])


def test_a_higher_quality_takes_more_trials(tables: Tables) -> None:
    for method in ("one", "kin"):
        for run in range(3):
            rows = [row for row in tables["reached"] if (row["method"], row["run"]) == (method, run)]
            trials = [row["trials"] for row in sorted(rows, key=lambda row: float(row["quality"] or 0))]
            known = [count for count in trials if count is not None]
            assert known == sorted(known)
            assert trials[: len(known)] == known


def test_the_report_compares_the_strategies(tables: Tables) -> None:
    (section,) = EXPERIMENT.report(tables)
    (grid,) = section.grids
    assert grid.header == ("trials to reach", "80 %", "90 %", "95 %", "99 %")
    assert [row[0] for row in grid.rows] == ["one", "kin"]
    (chart,) = section.charts
    assert isinstance(chart, LineChart)
    for series in chart.series:
        assert list(series.y) == sorted(series.y)
        assert all(low <= middle <= high for low, middle, high in zip(series.low, series.y, series.high, strict=True))
    assert EXPERIMENT.report({}) == []


def test_samples_beyond_those_that_were_asked_for_change_nothing(tmp_path: Path) -> None:
    found = []
    for samples in (24, 48):
        path = tmp_path / f"{samples}.npz"
        save_pool(path, synthetic_pool(48).first(samples))
        asked = cell(search("one", foresee="none"), pool=str(path), samples=24, runs=1)
        found.append(EXPERIMENT.run(asked, tmp_path, lambda _: None))
    assert found[0] == found[1]
    assert {row["measured"] for row in found[1]["pool"]} == {24}


@pytest.mark.parametrize("option", ["samples", "threads", "trials_per_subgraph"])
def test_searches_of_different_pools_and_budgets_are_told_apart(tables: Tables, option: str) -> None:
    both = {name: [{**row, option: value} for value in (24, 48) for row in rows] for name, rows in tables.items()}
    (alone,) = EXPERIMENT.report(tables)
    sections = EXPERIMENT.report(both)
    assert [section.title for section in sections] == [f"Replay: synthetic, {option} {value}" for value in (24, 48)]
    assert [section.grids for section in sections] == [alone.grids, alone.grids]


def test_there_must_be_something_to_compare() -> None:
    with pytest.raises(InputError, match="name the strategies to compare"):
        EXPERIMENT.check(cell())


def test_time_is_expected_for_every_search(tmp_path: Path) -> None:
    one = EXPERIMENT.seconds(cell(search("one")), {})
    two = EXPERIMENT.seconds(cell(search("one"), search("two")), {})
    assert one is not None
    assert two is not None
    assert two > one


def test_time_is_expected_for_the_trials_that_are_asked_for() -> None:
    half = EXPERIMENT.seconds(cell(search("one"), samples=64), {})
    fewer = EXPERIMENT.seconds(cell(search("one"), samples=64, trials_per_subgraph=16), {})
    assert half is not None
    assert fewer is not None
    assert fewer < half
