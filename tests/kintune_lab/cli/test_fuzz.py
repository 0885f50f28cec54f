"""`kintune fuzz`: slices of its campaigns, and what is found is written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command import Kintune

pytestmark = pytest.mark.tvm

_SEED, _SEED_OF_AN_HOUR = 57, 58
_RIGHT = {"open": 0.4}  # least share: many drawn graphs are not the same for all extents


def _campaign(kintune: Kintune, what: str, graphs: int, seed: int, folder: Path) -> None:
    """Try so many graphs: there is no fault, and most are right."""
    document = folder / "counts.json"
    said = kintune("fuzz", what, "--graphs", graphs, "--seed", seed, "-o", folder / "found", "--json", document)
    counts = json.loads(document.read_text())
    faults = "\n\n".join(path.read_text() for path in sorted(folder.glob("found/faults/*/fault.txt")))
    assert (said.code, counts["signatures"]) == (0, {}), f"{said.err}\n{faults}"
    assert sum(counts["kinds"].values()) == graphs
    assert counts["kinds"]["right"] >= int(_RIGHT.get(what, 0.8) * graphs)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("what", "graphs"), [("onnx", 30), ("quantised", 3), ("candidates", 4), ("open", 3)])
def test_drawn_graphs_compute_what_the_references_do(kintune: Kintune, tmp_path: Path, what: str, graphs: int) -> None:
    _campaign(kintune, what, graphs, _SEED, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(3 * 3600)
@pytest.mark.parametrize(
    ("what", "graphs"),
    [
        ("onnx", 3000),
        ("quantised", 300),
        ("candidates", 600),
        ("open", 300),
        pytest.param("torch", 600, marks=pytest.mark.needs("torch")),
    ],
)
def test_many_drawn_graphs_compute_what_the_references_do(
    kintune: Kintune, tmp_path: Path, what: str, graphs: int
) -> None:
    _campaign(kintune, what, graphs, _SEED_OF_AN_HOUR, tmp_path)
