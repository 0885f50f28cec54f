from __future__ import annotations

import errno
import tempfile
from pathlib import Path

import pytest

from kintune.errors import StorageError, StorageFull
from kintune.runtime.stored_zip import folder_beside


def test_a_folder_beside_a_file_goes_with_its_context(tmp_path: Path) -> None:
    with folder_beside(tmp_path / "out.kt", "parts-") as folder:
        assert (folder.parent, folder.name.startswith("parts-")) == (tmp_path, True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("number", "kind"), [(errno.ENOSPC, StorageFull), (errno.EACCES, StorageError)])
def test_where_no_folder_can_be_made_the_file_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[StorageError]
) -> None:
    def refuse(**_: object) -> None:
        raise OSError(number, "no")

    monkeypatch.setattr(tempfile, "TemporaryDirectory", refuse)
    with (
        pytest.raises(StorageError, match=r"out\.kt: cannot be written: no") as raised,
        folder_beside(tmp_path / "out.kt", "parts-"),
    ):
        pass
    assert type(raised.value) is kind
