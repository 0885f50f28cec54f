from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import msgspec
import pytest

from kintune.errors import EngineError, KintuneError, StorageError
from kintune.service.settings import ServiceSettings
from kintune.service.web import process


@pytest.mark.parametrize(
    ("error", "code"), [(StorageError("the disk is full"), os.EX_TEMPFAIL), (EngineError("broken"), 1)]
)
def test_what_passes_is_told_from_what_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: KintuneError, code: int
) -> None:
    def fails(_settings: ServiceSettings) -> NoReturn:
        raise error

    (tmp_path / "settings.json").write_bytes(msgspec.json.encode(ServiceSettings(data=str(tmp_path))))
    monkeypatch.setattr(process.logs, "configure", lambda part: None)
    monkeypatch.setattr(process, "step_aside", lambda settings: None)
    monkeypatch.setattr(process, "ApplicationState", fails)
    assert process.main([str(tmp_path / "settings.json")]) == code
