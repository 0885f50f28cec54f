from __future__ import annotations

from pathlib import Path

from kintune.service.orchestrator.excerpt import excerpt


def test_the_lines_of_one_run_are_taken(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_text("[job a] started\n[build.1] started\n[job b] started\n[job a] exited\n")
    assert excerpt(log, "a") == b"[job a] started\n[job a] exited\n"
    assert excerpt(log, "c") == b""


def test_of_very_many_the_last_ones_are_taken(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_text("".join(f"[job a] {number:06} {'x' * 990}\n" for number in range(2000)))
    said = excerpt(log, "a")
    assert len(said) <= 1 << 20
    assert b" 001999 " in said
    assert b" 000000 " not in said


def test_without_a_log_there_is_nothing(tmp_path: Path) -> None:
    assert excerpt(tmp_path / "none", "a") == b""
