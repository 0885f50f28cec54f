"""The builder and the runner that `tune_relax` makes for itself, for all contestants alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tvm.s_tir import meta_schedule as ms

from kintune.compiler.graph.lowering_rules import use_vector_functions

__all__ = ["STOCK_TOOLS", "StockTools"]


class StockTools(NamedTuple):
    """How a builder for a number of processes, and a runner, are made."""

    builder: Callable[[int], Any]
    runner: Callable[[], Any]


STOCK_TOOLS = StockTools(
    lambda threads: ms.Builder.create("local", max_workers=threads, initializer=use_vector_functions),
    lambda: ms.Runner.create("local"),
)
"""The stock ones with their defaults, and the elementary functions that everybody's programs are compiled with."""
