"""The script that runs two jobs under every policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def run(setup: str) -> dict[str, Any]:
    return {"setup": setup, "repeat": 0, "seconds": 8.0, "bound_s": 4.0, "over_bound": 2.0, "stages": {"build": [1.5]}}


def test_setups_are_summed_up_with_and_without_the_dedicated_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")  # the script finds its neighbours there
    from benchmarks.live_schedules import summary

    times: dict[str, Any] = {"c": ("w", 5.0, 5.0)}
    _, dedicated, fair = summary([run("dedicated"), run("fair")], {"dedicated:0": times, "fair:0": times})
    assert dedicated.split()[1:] == fair.split()[1:]
    _, alone = summary([run("fair")], {"fair:0": times})
    assert alone.split()[:5] == ["fair", "8.0", "8.0-", "8.0", "2.000"]
    assert alone.split()[5:] == ["nan", "0.00", "1.50", "0.00", "nan", "nan", "1.000"]
