from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kintune.service.web import upload
from tests.support.guests import dynamic_onnx


def test_one_who_says_too_much_is_not_listened_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "net.onnx").write_bytes(dynamic_onnx().SerializeToString())
    monkeypatch.setattr(upload, "_MOST_SAID", 10)
    assert "more to say" in asyncio.run(upload.look(tmp_path / "net.onnx")).problem
