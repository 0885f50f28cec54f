from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

STOCK = "tvm.s_tir.meta_schedule"


@pytest.fixture(autouse=True)
def _loggers_as_before() -> Iterator[None]:
    """Stock adds handlers to its loggers, and cannot do so twice in a process where others listen to them."""
    level = logging.getLogger(STOCK).level
    logging.getLogger(STOCK).setLevel(logging.ERROR)
    yield
    for name in [STOCK, *(known for known in logging.root.manager.loggerDict if known.startswith(f"{STOCK}."))]:
        logger = logging.getLogger(name)
        logger.propagate = True
        for handler in [handler for handler in logger.handlers if (handler.get_name() or "").startswith(STOCK)]:
            logger.removeHandler(handler)
            handler.close()
    logging.getLogger(STOCK).setLevel(level)
