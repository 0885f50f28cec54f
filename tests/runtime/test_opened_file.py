from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import kintune
from kintune.errors import InputError
from kintune.runtime.opened_file import OpenedFile
from tests.support.toy_hybrid import write_toy_hybrid
from tests.support.toy_model import adding, write_model


@pytest.mark.parametrize("write", [lambda folder: write_model(folder / "toy.kt"), write_toy_hybrid])
def test_what_was_opened_is_saved_whatever_takes_its_path(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    path = write(tmp_path)
    content, executable = path.read_bytes(), kintune.open(path)
    path.unlink()
    executable.save(tmp_path / "saved.kt")
    write_model(path, [adding(10)])
    executable.save(tmp_path / "again.kt")
    assert (tmp_path / "saved.kt").read_bytes() == (tmp_path / "again.kt").read_bytes() == content


def test_errors_name_the_path_that_was_given(tmp_path: Path) -> None:
    path = write_model(tmp_path / "toy.kt")
    content = bytearray(path.read_bytes())
    content[content.index(np.arange(1000, dtype=np.float32).tobytes()) + 40] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match=rf"^{path}: damaged: bad checksum of its weights"):
        kintune.open(path)
    with pytest.raises(InputError, match=r"no\.kt: no such file"):
        OpenedFile(tmp_path / "no.kt")
    with pytest.raises(InputError, match="a directory, not a Kintune executable"):
        OpenedFile(tmp_path)
