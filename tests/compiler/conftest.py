"""What tests of the compiler share."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.targets import native_target


@pytest.fixture(scope="session")
def here() -> Any:
    """The CPU of this machine, as a target of one thread."""
    return native_target()
