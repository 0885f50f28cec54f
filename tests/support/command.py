from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from kintune.cli import main


class Said(NamedTuple):
    """What a command said, and its exit code."""

    code: int
    out: str
    err: str


Kintune = Callable[..., Said]


@pytest.fixture
def kintune(capfd: pytest.CaptureFixture[str]) -> Kintune:
    """Run the command line in this process."""

    def run(*arguments: object) -> Said:
        code = main([str(argument) for argument in arguments])
        return Said(int(code), *capfd.readouterr())

    return run
