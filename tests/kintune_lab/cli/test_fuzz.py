"""`kintune fuzz onnx`: a slice of the campaign, and what is found is written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command import Kintune

pytestmark = pytest.mark.tvm

_GRAPHS = 60
_GRAPHS_OF_AN_HOUR = 3000


def _campaign(kintune: Kintune, graphs: int, seed: int, folder: Path) -> dict[str, int]:
    document = folder / "counts.json"
    said = kintune("fuzz", "onnx", "--graphs", graphs, "--seed", seed, "-o", folder / "found", "--json", document)
    counts = json.loads(document.read_text())
    faults = "\n\n".join(path.read_text() for path in sorted(folder.glob("found/faults/*/fault.txt")))
    assert (said.code, counts["signatures"]) == (0, {}), f"{said.err}\n{faults}"
    return dict(counts["kinds"])


@pytest.mark.timeout(1200)
def test_drawn_graphs_compute_what_the_references_do(kintune: Kintune, tmp_path: Path) -> None:
    kinds = _campaign(kintune, _GRAPHS, 57, tmp_path)
    assert sum(kinds.values()) == _GRAPHS
    assert kinds["right"] > 0.9 * _GRAPHS


@pytest.mark.slow
@pytest.mark.timeout(3 * 3600)
def test_many_drawn_graphs_compute_what_the_references_do(kintune: Kintune, tmp_path: Path) -> None:
    kinds = _campaign(kintune, _GRAPHS_OF_AN_HOUR, 58, tmp_path)
    assert kinds["right"] > 0.9 * _GRAPHS_OF_AN_HOUR
