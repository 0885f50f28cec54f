from __future__ import annotations

from pathlib import Path

import msgspec

from kintune.service.settings import ServiceSettings
from kintune.service.supervisor import Supervisor


def read(path: Path) -> ServiceSettings:
    return msgspec.json.decode(path.read_bytes(), type=ServiceSettings)


def test_parts_that_run_apart_keep_their_own_settings(tmp_path: Path) -> None:
    web, orchestrator = (
        ServiceSettings(data=str(tmp_path), port=81),
        ServiceSettings(data=str(tmp_path), device="cpu:1"),
    )
    Supervisor(web, print, ("web",))
    Supervisor(orchestrator, print, ("orchestrator",))
    assert read(tmp_path / "settings-web.json") == web
    assert read(tmp_path / "settings-orchestrator.json") == orchestrator
    assert read(web.file) == orchestrator  # what commands need is the same in both
