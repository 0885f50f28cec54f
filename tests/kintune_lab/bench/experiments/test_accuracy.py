from __future__ import annotations

from pathlib import Path

import pytest

from kintune.errors import InputError
from kintune_lab.bench.experiments.accuracy import EXPERIMENT, train_sizes
from kintune_lab.experiment.experiment import Cell, Method, ModelFacts
from kintune_lab.experiment.option import OptionError, Value
from kintune_lab.experiment.tables import Row, Tables, check_tables, joined
from kintune_lab.pools.accuracy_report import paired_differences
from kintune_lab.pools.pool import save_pool
from tests.support.synthetic_pool import synthetic_pool


def trees(families: str, rounds: int = 20, depth: int = 4, *, rooted: bool = False) -> Method:
    values: dict[str, Value | None] = {"families": families, "rounds": rounds, "depth": depth, "rooted": rooted}
    return Method("trees", f"trees {families} {rounds}", values)


def cell(*methods: Method, **values: Value) -> Cell:
    defaults: dict[str, Value | None] = {name: option.default for name, option in EXPERIMENT.options.items()}
    return Cell("accuracy", 1, {**defaults, "model": "synthetic", **values}, {}, methods)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """What a cell with two groupings yields, as the report sees it."""
    path = tmp_path_factory.mktemp("pools") / "pool.npz"
    save_pool(path, synthetic_pool(48))
    asked = cell(trees("none"), trees("op"), trees("ind"), pool=str(path), samples=48, splits=3)
    found = EXPERIMENT.run(asked, path.parent, lambda _: None)
    check_tables(found)
    return {name: joined(rows, asked.id, asked.values) for name, rows in found.items()}


def test_every_model_is_tried_on_every_subgraph_with_every_number_of_samples(tables: Tables) -> None:
    rows = tables["accuracy"]
    assert len(rows) == 3 * 3 * 3 * 3  # methods, splits, subgraphs, sizes
    assert {row["train_samples"] for row in rows} == {12, 24, 36}
    families = {(row["method"], row["family"]) for row in rows}
    assert len({family for method, family in families if method == "trees none 20"}) == 1
    assert len({family for method, family in families if method == "trees op 20"}) == 2
    assert len({family for method, family in families if method == "trees ind 20"}) == 3


def test_the_pool_is_described(tables: Tables) -> None:
    assert [(row["operator"], row["measured"]) for row in tables["pool"]] == [
        ("dense", 48), ("dense", 48), ("batch_matmul", 48),
    ]  # fmt: skip


def test_a_family_of_one_learns_as_alone(tables: Tables) -> None:
    by_op, alone = (
        [row["pair_accuracy"] for row in tables["accuracy"] if row["method"] == method and row["workload"] == "deep"]
        for method in ("trees op 20", "trees ind 20")
    )
    assert by_op == alone


def test_the_report_shows_curves_and_differences(tables: Tables) -> None:
    (section,) = EXPERIMENT.report(tables)
    assert section.title == "Model accuracy: synthetic, split random"
    assert [chart.name.rpartition("-synthetic")[0] for chart in section.charts] == [
        "accuracy-pairs", "accuracy-recall", "accuracy-gain",
    ]  # fmt: skip
    summary, gaps, by_subgraph = section.grids
    assert [row[:2] for row in summary.rows] == [("none", "1"), ("op", "2"), ("ind", "3")]
    assert [row[:2] for row in gaps.rows] == [(name, size) for name in ("op", "ind") for size in ("12", "24", "36")]
    assert len(by_subgraph.rows) == 3
    assert EXPERIMENT.report({}) == []


@pytest.mark.parametrize("option", ["samples", "threads"])
def test_pools_of_different_sizes_are_told_apart(tables: Tables, option: str) -> None:
    both = {name: [{**row, option: value} for value in (24, 48) for row in rows] for name, rows in tables.items()}
    titles = [section.title for section in EXPERIMENT.report(both)]
    assert titles == [f"Model accuracy: synthetic, split random, {option} {value}" for value in (24, 48)]


def test_differences_are_paired_by_split_and_subgraph() -> None:
    rows: list[Row] = [
        {"cell": "c", "split_number": split, "train_samples": 12, "workload": workload, "families": families,
         "models": families, "rounds": 1, "depth": 1, "pair_accuracy": split / 10 + at / 5 + (families == "op") / 20}
        for split in (0, 1) for at, workload in enumerate("ab") for families in ("none", "op")
    ]  # fmt: skip
    (((models, samples), gap),) = paired_differences(rows, "pair_accuracy").items()
    assert (models, samples) == ("op", 12)
    assert (gap.low, gap.mean, gap.high) == pytest.approx((0.05, 0.05, 0.05))


def test_a_rooted_monolith_is_compared_with_the_plain_one() -> None:
    rows: list[Row] = [
        {"cell": "c", "split_number": 0, "train_samples": 12, "workload": workload, "families": families,
         "rooted": rooted, "models": f"{families} {rooted}", "rounds": 1, "depth": 1,
         "pair_accuracy": 0.5 + 0.1 * rooted + 0.2 * (families == "op")}
        for workload in "ab" for families in ("none", "op") for rooted in (False, True)
    ]  # fmt: skip
    gaps = {models: gap.mean for (models, _), gap in paired_differences(rows, "pair_accuracy").items()}
    assert gaps == pytest.approx({"none True": 0.1, "op False": 0.2, "op True": 0.3})


def test_models_are_compared_with_a_monolithic_one_of_their_size() -> None:
    EXPERIMENT.check(cell(trees("none"), trees("op")))
    with pytest.raises(InputError, match="name the models to compare"):
        EXPERIMENT.check(cell())
    with pytest.raises(OptionError, match="no model of the same rounds and depth") as refused:
        EXPERIMENT.check(cell(trees("none"), trees("op", rounds=30)))
    assert (refused.value.option, refused.value.method) == ("families", "trees op 30")
    with pytest.raises(OptionError, match="with families none, not rooted"):
        EXPERIMENT.check(cell(trees("none", rooted=True), trees("op")))


@pytest.mark.parametrize(
    ("place", "problem"),
    [("pool.zip", r'must end in "\.npz"'), ("no/where/pool.npz", "there is no directory no/where")],
)
def test_a_pool_must_have_a_place(place: str, problem: str) -> None:
    with pytest.raises(OptionError, match=problem):
        EXPERIMENT.check(cell(trees("none"), pool=place))


def test_a_pool_that_cannot_be_used_is_refused_beforehand(tmp_path: Path) -> None:
    path = tmp_path / "pool.npz"
    save_pool(path, synthetic_pool(16))
    EXPERIMENT.check(cell(trees("none"), pool=str(path)))
    with pytest.raises(OptionError, match=r"cannot be used: .* is a pool of seed 0, not of 1"):
        EXPERIMENT.check(cell(trees("none"), pool=str(path), seed=1))
    path.write_bytes(b"nothing")
    with pytest.raises(OptionError, match=r"cannot be used: .* is no pool"):
        EXPERIMENT.check(cell(trees("none"), pool=str(path)))


def test_collecting_takes_the_time_unless_the_pool_is_there(tmp_path: Path) -> None:
    models = {"synthetic": ModelFacts(20, 10, 1e9)}
    before = EXPERIMENT.seconds(cell(trees("none"), pool=str(tmp_path / "pool.npz")), models)
    save_pool(tmp_path / "pool.npz", synthetic_pool(16))
    after = EXPERIMENT.seconds(cell(trees("none"), pool=str(tmp_path / "pool.npz")), models)
    assert before is not None
    assert after is not None
    assert before > after


def test_a_pool_of_another_network_fails_the_cell(tmp_path: Path) -> None:
    save_pool(tmp_path / "pool.npz", synthetic_pool(16))
    asked = cell(trees("none"), pool=str(tmp_path / "pool.npz"), samples=16, model="zoo:resnet18")
    with pytest.raises(InputError, match="is a pool of synthetic, not of zoo:resnet18"):
        EXPERIMENT.run(asked, tmp_path, lambda _: None)


@pytest.mark.parametrize(("most", "sizes"), [(12, [12]), (36, [12, 24, 36]), (192, [12, 24, 48, 96, 192]), (5, [5])])
def test_sizes_double_up_to_the_most(most: int, sizes: list[int]) -> None:
    assert train_sizes(most) == sizes
