from __future__ import annotations

import pytest

from kintune.wire.child import describe_end


@pytest.mark.parametrize(
    ("code", "words"),
    [(0, "exited with code 0"), (3, "exited with code 3"), (-11, "killed by SIGSEGV"), (-200, "killed by signal 200")],
)
def test_an_end_in_words(code: int, words: str) -> None:
    assert describe_end(code) == words
