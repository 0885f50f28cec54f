from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kintune.core.model import ModelRef
from kintune.core.stage_results import Prepared
from kintune_lab.bench.experiments import families as module
from kintune_lab.bench.experiments.families import EXPERIMENT
from kintune_lab.experiment.experiment import Cell
from kintune_lab.experiment.option import OptionError, Value
from kintune_lab.experiment.tables import Tables, check_tables, joined
from kintune_lab.pools.pool import save_pool
from tests.support.example_families import prepared_network
from tests.support.synthetic_pool import synthetic_pool


def cell(**values: Value) -> Cell:
    return Cell("families", 1, {"pool": None, "model": "zoo:resnet18", **values}, {})


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Tables:
    """What a cell yields, as the report sees it."""

    @contextmanager
    def preparing(**_: object) -> Iterator[Callable[[ModelRef], Prepared]]:
        yield lambda _: prepared_network()

    monkeypatch.setattr(module, "preparing", preparing)
    found = EXPERIMENT.run(cell(), tmp_path, lambda _: None)
    check_tables(found)
    return {name: joined(rows, cell().id, cell().values) for name, rows in found.items()}


def test_each_rule_groups_the_subgraphs_that_are_worth_tuning(tables: Tables) -> None:
    counts = {row["families"]: row["family_count"] for row in tables["family_counts"]}
    assert counts == {"op": 2, "hash": 3, "ind": 4, "none": 1}
    assert {(row["subgraphs"], row["tunable"]) for row in tables["family_counts"]} == {(5, 4)}
    by_op = [
        (row["family"], row["members"], row["occurrences"]) for row in tables["families"] if row["families"] == "op"
    ]
    assert by_op == [("op:conv2d", 2, 4), ("op:dense", 2, 2)]


def test_the_report_counts_by_network(tables: Tables) -> None:
    (section,) = EXPERIMENT.report(tables)
    counts, by_op = section.grids
    assert counts.rows == (("resnet18", "5", "4", "2", "3", "4", "1"),)
    assert by_op.rows == (("resnet18", "conv2d (2), dense (2)"),)
    (chart,) = section.charts
    assert chart.name == "families"
    assert EXPERIMENT.report({}) == ()


def test_a_pool_must_be_of_the_network(tmp_path: Path) -> None:
    EXPERIMENT.check(cell())
    save_pool(tmp_path / "pool.npz", synthetic_pool(16))
    EXPERIMENT.check(cell(pool=str(tmp_path / "pool.npz"), model="synthetic"))
    with pytest.raises(OptionError, match=r"is one of synthetic, not of zoo:resnet18"):
        EXPERIMENT.check(cell(pool=str(tmp_path / "pool.npz")))
    (tmp_path / "pool.npz").write_text("hello")
    with pytest.raises(OptionError, match="cannot be used"):
        EXPERIMENT.check(cell(pool=str(tmp_path / "pool.npz")))
