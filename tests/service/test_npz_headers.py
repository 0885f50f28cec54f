from __future__ import annotations

import struct
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kintune.errors import InputError
from kintune.service.model_store import Input
from kintune.service.npz_headers import read_headers

MOST = 1 << 30
MAGIC = b"\x93NUMPY"


def packed(path: Path, data: bytes, compression: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("x.npy", data)
    return path


def described(text: str) -> bytes:
    """The beginning of an .npy file whose header is this text."""
    return MAGIC + b"\x01\x00" + struct.pack("<H", len(text)) + text.encode()


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_what_numpy_writes_is_read(tmp_path: Path, save: Any) -> None:
    save(tmp_path / "inputs.npz", x=np.zeros((2, 3), np.float32), flag=np.array(True))
    found = read_headers(tmp_path / "inputs.npz", MOST)
    assert found == (Input("x", (2, 3), "float32"), Input("flag", (), "bool"))


@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_what_numpy_does_not_write_is_not_unpacked(tmp_path: Path, compression: int) -> None:
    np.save(tmp_path / "x.npy", np.zeros(4))
    path = packed(tmp_path / "inputs.npz", (tmp_path / "x.npy").read_bytes(), compression)
    with pytest.raises(InputError, match=r"not an \.npz file of plain arrays"):
        read_headers(path, MOST)


def test_a_header_that_says_it_is_long_is_not_read_to_its_end(tmp_path: Path) -> None:
    size = 64 << 20
    path = packed(tmp_path / "inputs.npz", MAGIC + b"\x02\x00" + struct.pack("<I", size) + b" " * size)
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=r"not an \.npz file of plain arrays"):
            read_headers(path, MOST)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
        f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({1 << 64},)}}",
        "{'descr': ('<f4',), 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '<f4', 1: False, 'shape': (1,)}",
        "{'descr': '<f4', 'fortran_order': (((",
        "-" * 9000,
    ],
)
def test_a_header_that_makes_no_sense_is_refused(tmp_path: Path, header: str) -> None:
    with pytest.raises(InputError, match=r"not an \.npz file of plain arrays"):
        read_headers(packed(tmp_path / "inputs.npz", described(header)), MOST)
