"""Mutation testing: which mutants are drawn, which may survive, and that no other one does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

ROOT = Path(__file__).parents[2]

sys.path.insert(0, str(ROOT / "tools"))
try:
    import mutants
finally:
    sys.path.remove(str(ROOT / "tools"))


@given(names=st.sets(st.text(min_size=1), max_size=30), count=st.integers(0, 30), seed=st.integers(0, 5))
def test_a_name_keeps_its_place_whatever_else_is_drawn(names: set[str], count: int, seed: int) -> None:
    drawn = mutants.drawn(names, count, seed)
    assert len(drawn) == len(set(drawn)) == min(count, len(names))
    assert mutants.drawn(names, len(names), seed)[:count] == drawn
    fewer = set(sorted(names)[::2])
    assert mutants.drawn(fewer, len(names), seed) == [n for n in mutants.drawn(names, len(names), seed) if n in fewer]


@pytest.mark.parametrize("part", mutants.PARTS)
def test_each_part_has_all_its_sources_and_tests(part: str) -> None:
    found = mutants.PARTS[part]
    assert all(list(ROOT.glob(pattern)) for pattern in found.sources)
    assert all((ROOT / place).exists() for place in found.tests)


def test_each_explained_mutant_is_of_a_line_that_is_still_there() -> None:
    for change, reason in mutants.explained().items():
        module, _, _ = change.function.partition(":")
        place = ROOT / "src/kintune" / module.replace(".", "/")
        source = (place / "__init__.py" if place.is_dir() else place.with_suffix(".py")).read_text()
        assert change.before in " ".join(source.split()), change
        assert change.before != change.after
        assert reason


WORKED_THROUGH = ("core", "readers", "records", "scheduler", "search", "validate")
"""Parts of which every survivor among the first mutants was killed or explained."""


@pytest.mark.slow
@pytest.mark.needs("mutmut")
@pytest.mark.parametrize("part", WORKED_THROUGH)
def test_no_drawn_mutant_survives_unexplained(part: str) -> None:
    tool = [sys.executable, str(ROOT / "tools/mutants.py"), part, "--count", "30"]
    done = subprocess.run(tool, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
