"""The script that measures what a fleet costs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import fleet_costs


def test_a_part_that_was_measured_elsewhere_keeps_its_cpu_and_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = tmp_path / "fleet_costs.json"
    ray = {"cpu": "another", "date": "2026-11-22", "rounds": 8, "seconds": {"local": [1.0], "ray": [2.0]}}
    results.write_text(json.dumps({"ray": ray}))
    monkeypatch.setattr(fleet_costs, "RESULTS", results)
    monkeypatch.setattr(fleet_costs, "inspect_machine", lambda: SimpleNamespace(cpu="this"))
    monkeypatch.setattr(fleet_costs, "compare", lambda *_: {"one device": [2.0], "two": [1.0]})
    monkeypatch.setattr(sys, "argv", ["fleet_costs.py", "--only", "devices"])
    fleet_costs.main()
    found = json.loads(results.read_text())
    assert found.keys() == {"ray", "devices"}
    assert (found["ray"], found["devices"]["cpu"]) == (ray, "this")
