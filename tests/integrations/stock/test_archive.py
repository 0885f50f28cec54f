from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.tvm


def test_a_file_has_its_own_arrays_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written without `savez_compressed`, whose arguments are not the same in all versions of numpy."""
    from kintune.integrations.stock.archive import Archive, read_archive, write_archive

    monkeypatch.delattr(np, "savez_compressed")
    archive = Archive("op", {}, {}, {"a": b"trees " * 1000})
    write_archive(tmp_path / "model", archive)
    with zipfile.ZipFile(tmp_path / "model") as written:
        assert written.namelist() == ["header.npy", "trees_0.npy"]
        assert all(each.compress_size < each.file_size for each in written.infolist())
    assert read_archive(tmp_path / "model") == archive
