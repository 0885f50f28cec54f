"""Long files of tests come first, and property tests draw as many examples as the profile says."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import examples
from tests.support.examples import compiled_examples
from tests.support.order import LONG, long_first

ROOT = Path(__file__).parents[2]


class Item(NamedTuple):
    nodeid: str


def test_long_files_are_there() -> None:
    assert [name for name in LONG if not (ROOT / name).is_file()] == []
    assert len(set(LONG)) == len(LONG)


def test_long_files_come_first_and_tests_keep_their_order() -> None:
    names = ("tests/a.py::b", "tests/a.py::a", f"{LONG[1]}::T::b", f"{LONG[0]}::a", f"{LONG[1]}::a", "tests/b.py::a")
    found = long_first([Item(name) for name in names])  # type: ignore[arg-type, list-item]
    assert [item.nodeid for item in found] == [names[3], names[2], names[4], names[0], names[1], names[5]]


@pytest.mark.parametrize(("profile", "drawn"), [("default", 3), ("ci", 3), (examples.THOROUGH, 10)])
def test_few_examples_are_drawn_unless_all_are_asked_for(
    profile: str, drawn: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examples, "PROFILE", profile)

    @compiled_examples(10, derandomize=True)
    @given(st.integers())
    def test(number: int) -> None: ...

    found = getattr(test, "_hypothesis_internal_use_settings")  # noqa: B009 - there is no other way to ask
    assert isinstance(found, settings)
    assert (found.max_examples, found.derandomize) == (drawn, True)
    assert [mark.name for mark in getattr(test, "pytestmark")] == ["drawn"]  # noqa: B009
