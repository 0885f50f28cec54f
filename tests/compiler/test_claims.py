"""Each pass that rewrites a graph, and each reader of kernels, is on the page of claims, with a test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/design/claims.md"
COMPILER = ROOT / "src/kintune/compiler"

CLAIMS_NOTHING = {
    "assemble.py": "puts chosen programs in their places",
    "fusion_limits.py": "says what may not be fused",
    "lower.py": "runs the passes",
    "provenance.py": "tells which nodes a kernel computes",
    "rewriting.py": "is what passes have in common",
    "side_by_side.py": "compares programs",
}
"""Files with passes that take nothing for granted."""


def claims() -> list[tuple[str, str]]:
    """The second and the third column of the tables of the page."""
    rows = [line.strip("| \n").split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    return [(where, shown) for _, where, shown in rows]


def passes() -> list[Path]:
    """The files of the compiler that rewrite graphs."""
    return sorted(path for path in (COMPILER / "graph").glob("*.py") if "pass_of" in path.read_text())


@pytest.mark.parametrize("path", passes(), ids=lambda path: path.name)
def test_each_pass_is_a_claim_that_is_shown(path: Path) -> None:
    shown = [how for where, how in claims() if re.search(rf"[`/]{path.name}`", where)]
    assert bool(shown) != (path.name in CLAIMS_NOTHING), f"{path.name} is not on {PAGE.relative_to(ROOT)}"


def test_each_claim_has_a_test_or_a_check() -> None:
    for where, how in claims():
        assert re.search(r"test_\w+\.py|checked|proven|measured|at import", how) or where == "where", where


@pytest.mark.parametrize("pattern", re.findall(r"`([\w/]+\*[\w/]*\.py)`", PAGE.read_text()))
def test_patterns_of_files_find_some(pattern: str) -> None:
    assert list((ROOT / "src/kintune").glob(f"**/{pattern}"))
