"""Files that were changed at random, under sanitizers: each is refused, or runs inside of its memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.reader_fuzzer import FuzzProgram, has_libfuzzer


def test_what_was_changed_is_refused_or_runs(tmp_path: Path) -> None:
    program = FuzzProgram(tmp_path, libfuzzer=False)
    for path in program.corpus.iterdir():
        assert program.open(path).returncode == 0, path
    done = program.run(seed=1, count=30_000)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.slow
def test_many_of_them(tmp_path: Path) -> None:
    done = FuzzProgram(tmp_path, has_libfuzzer()).run(seed=2, count=500_000)
    assert done.returncode == 0, done.stderr[-3000:]
