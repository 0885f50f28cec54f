from __future__ import annotations

import os

import pytest


@pytest.fixture
def programs(tmp_path: os.PathLike[str], monkeypatch: pytest.MonkeyPatch) -> os.PathLike[str]:
    """A folder that is all that is searched for programs, with no toolkit named."""
    for variable in ("CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path
