"""How many examples a property test draws whose examples are compiled: a share in each run, all in `make test-slow`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from hypothesis import settings

__all__ = ["MUTANTS", "PROFILE", "THOROUGH", "compiled_examples"]

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "default")
"""The profile of property tests in this run."""

MUTANTS = "mutants"
"""The profile of `make mutants`: the same examples in each run, and none is made smaller."""

THOROUGH = "thorough"
"""The profile in which all examples are drawn."""

_SHARE = 4  # one of so many examples is drawn in other profiles

_Test = TypeVar("_Test", bound=Callable[..., Any])


def compiled_examples(number: int, **more: Any) -> Callable[[_Test], _Test]:
    """Let a property test draw `number` examples in `make test-slow`, and a quarter of them in other runs.

    `more` are further settings of Hypothesis.
    """
    apply = settings(max_examples=number if PROFILE == THOROUGH else -(-number // _SHARE), **more)

    def limit(test: _Test) -> _Test:
        limited: _Test = pytest.mark.drawn(apply(test))
        return limited

    return limit
