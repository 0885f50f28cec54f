from __future__ import annotations

import pytest

from kintune.wire.channel import tidy


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("killed by SIGSEGV", "killed by SIGSEGV"),
        ("two\nlines\r\n", "two lines"),
        ("nul\0 and \x1b[2Jcolour", "nul and [2Jcolour"),
        ("", ""),
    ],
)
def test_words_become_a_line(said: str, kept: str) -> None:
    assert tidy(said) == kept


def test_long_stories_are_cut() -> None:
    assert tidy("x" * 10**6) == "x" * 399 + "…"
