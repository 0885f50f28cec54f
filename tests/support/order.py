"""In which order files of tests run: long ones first, so that no process is left with one when the others are done."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

__all__ = ["LONG", "long_first"]

LONG = (
    "models/test_onnx_suite.py",
)
"""Files whose tests take longer than 20 seconds together, the longest first."""

_PLACES = {f"tests/{name}": place for place, name in enumerate(LONG)}


def long_first(items: Sequence[pytest.Item], root: Path) -> list[pytest.Item]:
    """The tests, those of long files first; tests of one file and files that are not long keep their order."""

    def place(item: pytest.Item) -> int:
        return _PLACES.get(item.path.relative_to(root).as_posix(), len(LONG))

    return sorted(items, key=place)
