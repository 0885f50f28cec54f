from __future__ import annotations

import json

import pytest

from kintune_lab.bench.experiments.compare import EXPERIMENT
from kintune_lab.comparison.report import compared_files, comparison_sections, markdown, to_json
from kintune_lab.experiment.section import BarChart
from kintune_lab.experiment.tables import Row, Scalar, Tables


def result(model: str, ours: float | None, others: dict[str, float], **more: Scalar) -> Row:
    """A row of the table `results`."""
    return {
        "cell": f"cell of {model}", "model": model, "minutes": 2.0, "threads": None, "seed": 0, "shapes": "",
        "cores": 2,
        "kintune_ms": ours, **{f"{name}_ms": time for name, time in others.items()}, "whole": ours is not None,
        "runs_in": "Kintune" if ours else "", "regions": 0, "left": "", "measured": 64 if ours else None,
        "max_abs_error": 1e-6 if ours else None, "correct": True if ours else None, "failed_at": "", "failure": "",
        **more,
    }  # fmt: skip


def tables(*results: Row, failed: tuple[str, ...] = ()) -> Tables:
    cells = [
        {"cell": row["cell"], "model": row["model"], "cpu": "a CPU", "started": "2026-11-26T10:00:00Z"}
        for row in results
    ]
    bare = [{"cell": f"cell of {m}", "model": m, "minutes": 2.0, "state": "failed", "reason": "broke"} for m in failed]
    latencies = [
        {
            "cell": row["cell"], "runtime": name, "version": "1.0" if name == "kintune" else "2.0",
            "median_ms": row.get(f"{name}_ms"), "p10_ms": 0.9, "p90_ms": 1.1,
            "runs": 50 if row.get(f"{name}_ms") else 0,
            "problem": "" if row.get(f"{name}_ms") else "cannot run it",
        }
        for row in results
        for name in ("kintune", "onnxruntime", "openvino")
    ]  # fmt: skip
    return {"results": list(results), "cells": [*cells, *bare], "latencies": latencies}


def example() -> Tables:
    return tables(
        result("m/slow.onnx", 4.0, {"onnxruntime": 2.0}),
        result("m/fast.onnx", 1.0, {"onnxruntime": 2.0, "openvino": 1.5}),
        result("m/lstm.onnx", None, {"onnxruntime": 2.0}, failed_at="compiling", failure="LSTM | x1"),
        failed=("m/broken.onnx",),
    )


def test_files_come_by_their_ratio_and_failures_last() -> None:
    (files,) = compared_files(example())
    assert files.setting == ""
    assert list(files.rows) == ["fast", "slow", "broken", "lstm"]
    assert files.summary.failed == {"broken": "broke", "lstm": "LSTM | x1"}


def test_the_report_has_ratios_files_losers_and_runtimes() -> None:
    sections = comparison_sections(example())
    assert [section.title for section in sections] == [
        "Against other runtimes", "Files", "Files that lost", "Runtimes",
    ]  # fmt: skip
    beside, files, lost, runtimes = (section.grids[0] for section in sections)
    assert sections[0].text[0] == "4 files: 2 with a result, 2 compiled whole; 2 failed, which their rows explain."
    assert sections[0].text[1] == "Threads of each runtime: 2."
    assert beside.rows[0] == ("onnxruntime", "2", "1.000", "1.000 (2 files)", "2.00 (slow)", "1", "0", "1")
    assert [row[0] for row in beside.rows] == ["onnxruntime", "openvino", "the fastest other"]
    assert files.header[:8] == ("file", "Kintune, ms", "onnxruntime, ms", "ratio", "is", "openvino, ms", "ratio", "is")
    assert files.rows[0][:8] == ("fast", "1", "2", "0.50", "won", "1.5", "0.67", "won")
    assert files.rows[3][-1] == "compiling: LSTM | x1"
    assert lost.rows == (("slow", "onnxruntime", "2.00"),)
    assert runtimes.rows[0] == ("kintune", "1.0", "2", "1 x cannot run it")


def test_the_plot_has_sorted_ratios_and_their_mean() -> None:
    (chart,) = comparison_sections(example())[0].charts
    assert isinstance(chart, BarChart)
    assert (chart.name, chart.log, chart.baseline) == ("ratios", True, 1.0)
    first = [(bar.group, bar.value) for bar in chart.bars if bar.series == "onnxruntime"]
    assert first == [("fast", 0.5), ("slow", 2.0), ("geometric mean", 1.0)]
    assert (chart.bars[0].low, chart.bars[0].high) == (0.45, 0.55)


def test_settings_of_one_file_are_compared_apart() -> None:
    rows = [result("m/a.onnx", 3.0 - m, {"onnxruntime": 2.0}, minutes=m, cell=f"{m}") for m in (0.0, 2.0)]
    titles = [section.title for section in comparison_sections(tables(*rows))]
    assert titles[0] == "Against other runtimes (minutes 0.0)"
    assert "Files (minutes 2.0)" in titles
    rows = [result("m/a.onnx", 3.0, {"onnxruntime": 2.0}, shapes=f"x={n}", cell=f"{n}") for n in (1, 2)]
    (files,) = compared_files(tables(*rows))
    assert list(files.rows) == ["a, shapes x=1", "a, shapes x=2"]


@pytest.mark.parametrize("option", [name for name in EXPERIMENT.options if name != "model"])
def test_a_file_that_was_compared_twice_has_two_rows(option: str) -> None:
    rows = [result("m/a.onnx", 1.0, {"onnxruntime": 2.0}, cell=value, **{option: value}) for value in ("one", "two")]
    found = compared_files(tables(*rows))
    assert sorted(str(row["cell"]) for files in found for row in files.rows.values()) == ["one", "two"]


def test_where_a_hybrid_runs_is_said() -> None:
    row = result("a.onnx", 1.0, {}, runs_in="Kintune and onnxruntime", regions=3, left="1 LSTM", whole=False)
    sections = comparison_sections(tables(row))
    assert "Kintune and onnxruntime (3 regions, left: 1 LSTM)" in sections[1].grids[0].rows[0]
    assert sections[0].charts == ()


def test_markdown_says_the_same() -> None:
    text = markdown(example())
    assert text.startswith("# Comparison\n\nMeasured on a CPU, 2026-11-26.\n\n## Against other runtimes\n")
    assert "| fast | 1 | 2 | 0.50 | won |" in text
    assert "LSTM \\| x1" in text


def test_the_document_can_be_read() -> None:
    document = json.loads(to_json(example()))
    assert (document["cpus"], document["days"]) == (["a CPU"], ["2026-11-26"])
    assert document["runtimes"]["onnxruntime"] == "2.0"
    (comparison,) = document["comparisons"]
    assert comparison["summary"]["against"][0]["lost"] == ["slow"]
    assert comparison["files"]["fast"]["kintune_ms"] == 1.0


def test_without_cells_there_is_nothing_to_say() -> None:
    assert comparison_sections({}) == []
    assert markdown({}) == "# Comparison\n"
    assert json.loads(to_json({}))["comparisons"] == []


def test_the_error_of_a_runtime_stands_beside_its_time_where_it_was_measured() -> None:
    measured = {"onnxruntime_int8_error": 0.02, "kintune_error": 0.01, "norm_error": 0.5}
    found = tables(result("m/net.onnx", 1.0, {"onnxruntime": 2.0, "onnxruntime_int8": 1.5}, **measured))
    (grid,) = next(section for section in comparison_sections(found) if section.title == "Files").grids
    (line,) = grid.rows
    told = dict(zip(grid.header, line, strict=True))
    assert told["its error"] == "0.02"
    assert grid.header.count("its error") == 1
    assert told["error of the norm"] == "0.01"
