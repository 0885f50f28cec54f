from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.journal import MemoryJournal
from tests.support.scripted_engine import ScriptedEngine


@pytest.fixture
def no_child_is_left() -> Iterator[None]:
    """Fails the test if a process that it started is still there at its end."""
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    yield
    assert [child for child in psutil.Process().children(recursive=True) if child.pid not in before] == []


@pytest.fixture
def bench(tmp_path: Path) -> ScriptedEngine:
    """An engine over a journal of its own."""
    return ScriptedEngine(tmp_path / "run.log", MemoryJournal())
