from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
import pytest

from kintune.wire.staging import (
    MADE_VARIABLE,
    READY,
    STAGING_VARIABLE,
    HandedOver,
    find,
    hand_over,
    is_apart,
    locate,
    place_of,
    staged_name,
)


def test_a_process_of_the_front_uses_its_paths(tmp_path: Path) -> None:
    path = str(tmp_path / "net.kt")
    assert (locate(path), find(path), place_of(path)) == (path, path, path)
    assert not is_apart()
    hand_over(path)  # of which nothing comes, since the front has it


def test_one_elsewhere_finds_what_was_brought_and_else_looks_where_the_front_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(STAGING_VARIABLE, str(tmp_path))
    (tmp_path / staged_name("/there/net.onnx")).touch()
    assert find("/there/net.onnx") == locate("/there/net.onnx")
    assert find("/there/others.onnx") == "/there/others.onnx"


def test_one_elsewhere_hands_over_what_it_has_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MADE_VARIABLE, str(tmp_path))
    assert is_apart()
    place = Path(place_of("/there/net.kt"))
    assert place == tmp_path / "net.kt"
    place.write_bytes(b"executable")
    hand_over("/there/net.kt")
    (ready,) = tmp_path.glob(f"*{READY}")
    digest = hashlib.sha256(b"executable").hexdigest()
    said = msgspec.json.decode(ready.read_bytes(), type=HandedOver)
    assert said == HandedOver("net.kt", "/there/net.kt", 10, digest)
    with pytest.raises(FileNotFoundError):
        hand_over("/there/missing.kt")


def test_the_file_for_a_board_lies_beside_the_other_wherever_they_are_staged() -> None:
    assert staged_name("/out/m.kt.unproven.board") == staged_name("/out/m.kt.unproven") + ".board"
