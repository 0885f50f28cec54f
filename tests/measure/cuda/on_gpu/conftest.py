"""What holds on every GPU: these run where one is, and on the one on paper (`test_on_paper.py`)."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(scope="session")
def device() -> Any:
    """What a device worker of the first GPU says of it, and its handler."""
    from kintune.workers.device_worker import open_device

    return open_device("native", 1, gpu=0, pulse=True)
