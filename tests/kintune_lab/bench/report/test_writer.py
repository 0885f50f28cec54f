from __future__ import annotations

import csv
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import pytest

from kintune import __version__
from kintune_lab.bench.display import open_bench_display
from kintune_lab.bench.runner import BenchRunner
from kintune_lab.bench.spec import BenchSpec, read_bench_spec
from kintune_lab.experiment.experiment import Cell, Show
from kintune_lab.experiment.section import Bar, BarChart, ReportSection
from kintune_lab.experiment.tables import Tables
from tests.support.fake_experiment import FakeExperiment


@pytest.fixture
def charted(tmp_path: Path) -> BenchSpec:
    """A spec whose experiment draws one chart a seed."""

    class Charted(FakeExperiment):
        def report(self, tables: Tables) -> Sequence[ReportSection]:
            seeds = {row["seed"] for row in tables.get("results", ())}
            charts = tuple(BarChart(f"seed-{seed}", "Chart", "x", (Bar("a", 1.0),)) for seed in sorted(map(str, seeds)))
            return [ReportSection("Charts", charts=charts)]

    (tmp_path / "spec.toml").write_text(
        'name = "a"\nexperiment = "fake"\ndescription = "why"\n[matrix]\nseed = [0, 1]\n'
    )
    return read_bench_spec(str(tmp_path / "spec.toml"), lambda _: Charted())


def bench_of(spec: BenchSpec, output: Path) -> BenchRunner:
    return BenchRunner(spec, output, open_bench_display("", quiet=True), lambda models: {})


def test_the_report_has_what_was_measured_and_each_plot_is_a_file(charted: BenchSpec, tmp_path: Path) -> None:
    (tmp_path / "out/plots").mkdir(parents=True)
    (tmp_path / "out/plots/old.svg").touch()
    summary = bench_of(charted, tmp_path / "out").run()
    assert sorted(path.name for path in (tmp_path / "out/plots").iterdir()) == ["seed-0.svg", "seed-1.svg"]
    assert {"report.html", "plots/seed-0.svg", "results.csv"} <= set(summary.files)
    text = (tmp_path / "out/report.html").read_text()
    assert text.count("<figure") == 2
    for part in ("why", "2 of 2 cells done", "Measured on", "seed = [0, 1]", "All 2 cells"):
        assert part in text


def test_cells_of_different_versions_are_told_apart(
    charted: BenchSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = charted.experiment.run

    def run_once(cell: Cell, directory: Path, show: Show) -> Tables:
        if cell.values["seed"] == 1:
            raise KeyboardInterrupt
        return ran(cell, directory, show)

    monkeypatch.setattr(charted.experiment, "run", run_once)
    with pytest.raises(KeyboardInterrupt):
        bench_of(charted, tmp_path / "out").run()
    bench_of(charted, tmp_path / "out").report()
    assert "different versions" not in (tmp_path / "out/report.html").read_text()
    monkeypatch.undo()
    monkeypatch.setattr("kintune_lab.bench.directory.__version__", "99.0")
    bench_of(charted, tmp_path / "out").run()
    text = (tmp_path / "out/report.html").read_text()
    assert "different versions" in text
    assert "1 with kintune 99.0 with compiler" in text
    with (tmp_path / "out/cells.csv").open() as file:
        versions = [(row["kintune"], row["compiler"]) for row in csv.DictReader(file)]
    compiler = version("apache-tvm")
    assert versions == [(__version__, compiler), ("99.0", compiler)]


def test_two_charts_of_one_name_are_both_kept(
    charted: BenchSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chart = BarChart("same", "Chart", "x", (Bar("a", 1.0),))
    monkeypatch.setattr(charted.experiment, "report", lambda tables: [ReportSection("A", charts=(chart, chart))])
    bench_of(charted, tmp_path / "out").run()
    assert sorted(path.name for path in (tmp_path / "out/plots").iterdir()) == ["same-2.svg", "same.svg"]
    assert (tmp_path / "out/report.html").read_text().count("<figure") == 2


def test_without_matplotlib_the_report_has_no_plots_and_says_so(
    charted: BenchSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kintune_lab.bench.report.writer.can_draw", lambda: False)
    bench_of(charted, tmp_path / "out").run()
    text = (tmp_path / "out/report.html").read_text()
    assert "kintune[bench]" in text
    assert "<figure" not in text
    assert not (tmp_path / "out/plots").exists()
