from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from tests.support.stock_rpc import stock_rpc


@pytest.fixture(scope="module")
def start_stock() -> Iterator[Callable[..., int]]:
    """Starts a program of the compiler's ("rpc_server", "rpc_tracker") with arguments; returns its port."""
    with contextlib.ExitStack() as stack:
        yield lambda *arguments: stack.enter_context(stock_rpc(*arguments))


@pytest.fixture(scope="module")
def board(start_stock: Callable[..., int]) -> str:
    """The address of a stock RPC server: a board as far as we can tell."""
    return f"127.0.0.1:{start_stock('rpc_server')}"
