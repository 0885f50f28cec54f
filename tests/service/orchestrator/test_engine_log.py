from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kintune.errors import StorageError
from kintune.service.orchestrator import engine_log as excerpt
from kintune.service.orchestrator.engine_log import EngineLog, lines_of


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EngineLog]:
    opened = EngineLog(tmp_path / "engine.log")
    yield opened
    opened.close()


def test_the_lines_of_one_run_are_taken(log: EngineLog) -> None:
    log.path.write_text("[job a] started\n[build.1] started\n[job b] started\n[job a] exited\n")
    assert log.of("a") == b"[job a] started\n[job a] exited\n"
    assert log.of("c") == b""


def test_what_was_said_before_the_run_began_is_not_read(log: EngineLog) -> None:
    log.path.write_text("[job a] started\n")
    before = log.size
    with log.path.open("a") as file:
        file.write("[job a] exited\n")
    assert log.of("a", before) == b"[job a] exited\n"


def test_of_very_many_the_last_ones_are_taken(log: EngineLog) -> None:
    log.path.write_text("".join(f"[job a] {number:06} {'x' * 990}\n" for number in range(2000)))
    said = log.of("a")
    assert len(said) <= 1 << 20
    assert b" 001999 " in said
    assert b" 000000 " not in said


def test_of_a_large_log_only_the_end_is_read(log: EngineLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(excerpt, "_MOST_READ", 20)
    log.path.write_text("[job a] started\n[job a] works\n[job a] exited\n")
    assert log.of("a") == b"[job a] exited\n"


def test_without_a_log_there_is_nothing(log: EngineLog) -> None:
    log.path.unlink()
    assert (log.of("a"), log.size) == (b"", 0)


def test_a_log_that_becomes_large_is_set_aside_and_one_old_one_kept(
    log: EngineLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(excerpt, "_LARGEST", 3)
    said, begun = [f"[job a] {number}\n" for number in range(4)], []
    for number in range(4):
        begun.append(log.size)
        log.write("job a", str(number))
    assert (log.path.read_text(), log.path.with_name("engine.log.1").read_text()) == (said[3], said[2])
    assert log.of("a") == log.of("a", begun[1]) == "".join(said[2:]).encode()
    assert log.of("a", begun[3]) == said[3].encode()


def test_what_an_earlier_process_has_set_aside_is_not_read(log: EngineLog) -> None:
    log.path.with_name("engine.log.1").write_text("[job a] long ago\n")
    log.write("job a", "now")
    assert log.of("a") == b"[job a] now\n"


def test_a_log_that_cannot_be_opened_is_told(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be written"):
        EngineLog(tmp_path)


def test_people_read_lines_without_the_name_of_the_run() -> None:
    said = "[job 0123456789ab] started: python\n[job 0123456789ab] \n[build.1] of job 0123456789ab: [job a]\n"
    assert lines_of(said) == ["started: python", "", "[build.1] of job 0123456789ab: [job a]"]
    assert lines_of("") == []
    assert lines_of("cut off") == ["cut off"]
