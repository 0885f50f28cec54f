from __future__ import annotations

from kintune_lab.bench.report.stages import stage_charts


def test_turns_are_added_up_and_cells_count_by_their_median() -> None:
    rows = [
        {"cell": cell, "model": "zoo:a", "method": "ours", "stage": stage, "seconds": seconds}
        for cell, stage, seconds in [
            ("1", "build", 1.0), ("1", "build", 2.0), ("1", "select", 5.0), ("2", "build", 7.0), ("2", "select", None)
        ]
    ]  # fmt: skip
    (chart,) = stage_charts(rows, panels=["model"], groups=["method"])
    assert chart.parts == ("build", "select")
    assert chart.groups == {"ours": (5.0, 2.5)}
