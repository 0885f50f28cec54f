from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kintune.workers.engine.process_log import ProcessLog, Tail

MEGABYTE = 1 << 20


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.log"


@pytest.fixture
def tail(path: Path) -> Iterator[Tail]:
    log = ProcessLog(path)
    yield Tail("w", log)
    log.close()


def test_lines_may_come_in_pieces_and_the_last_one_without_an_end(tail: Tail, path: Path) -> None:
    for data in (b"one\ntw", b"o\n", b"three"):
        tail.feed(data)
    assert tail.text == "one\ntwo"
    tail.finish()
    assert tail.text == "one\ntwo\nthree"
    assert path.read_text() == "[w] one\n[w] two\n[w] three\n"


@pytest.mark.parametrize("text", [b"x", b"x\n", b"\n", b"x" * 1000 + b"\n"], ids=range(4))
def test_however_much_is_printed_little_is_kept_and_logged(tail: Tail, path: Path, text: bytes) -> None:
    much = text * (MEGABYTE // 8 // len(text))
    for _ in range(100):
        tail.feed(much)
    tail.feed(b"\nlast words")
    tail.finish()
    assert tail.text.endswith("last words")
    assert len(tail.text) < MEGABYTE
    assert 8 * MEGABYTE < path.stat().st_size < 10 * MEGABYTE
    said = path.read_text()
    assert said.count("has printed too much") == 1
    assert said.endswith("last words\n")


def test_a_line_without_end_is_several(tail: Tail) -> None:
    for _ in range(100):
        tail.feed(b"x" * 1000)
    assert tail.text.replace("\n", "") == "x" * len(tail.text.replace("\n", ""))
    assert len(tail.text) > 80_000
