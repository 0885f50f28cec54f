"""Axes that are drawn."""

from __future__ import annotations

from hypothesis import strategies as st

from kintune.core.candidate import NamedChoice

__all__ = ["named_choices"]


def _rows(width: int) -> st.SearchStrategy[NamedChoice]:
    rows = st.lists(st.tuples(*[st.integers(0, 64)] * width), min_size=1, max_size=5, unique=True)
    return rows.map(lambda each: NamedChoice(("rows", "vectors", "blocks")[:width], tuple(each)))


named_choices = st.integers(1, 3).flatmap(_rows)
