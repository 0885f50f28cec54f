"""In which order files of tests run: long ones first, so that no process is left with one when the others are done."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

__all__ = ["LONG", "long_first"]

LONG = ("tests/models/test_onnx_suite.py",)
"""Files whose tests take longer than 20 seconds together, the longest first."""

_PLACES = {name: place for place, name in enumerate(LONG)}


def long_first(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The tests, those of long files first; tests of one file and files that are not long keep their order."""
    return sorted(items, key=lambda item: _PLACES.get(item.nodeid.partition("::")[0], len(LONG)))
