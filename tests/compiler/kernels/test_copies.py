"""Functions that copy rows are valid LLVM for any x86, whatever this CPU has, and round as numbers are rounded."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from tests.compiler.programs.test_touched_bytes import library_of, needs
from tests.support.bf16 import bits, widened

pytestmark = pytest.mark.tvm

TRIPLE = 'target triple = "x86_64-unknown-linux-gnu"\n'


def compiled(text: str, features: str, folder: Path) -> bytes:
    """The object file of a text, of whose functions the target has features."""
    import tvm  # noqa: F401 - it knows how to load LLVM's text
    import tvm_ffi

    attributes = f'\nattributes #0 = {{ "target-features"="{features}" }}\n'
    source, made = folder / "inner.ll", folder / "inner.o"
    source.write_text(TRIPLE + text.replace(") {\n", ") #0 {\n") + attributes)
    tvm_ffi.load_module(str(source)).write_to_file(str(made), "o")
    return made.read_bytes()


@pytest.mark.parametrize("features", ["+sse2", "+avx2", "+avx512f,+avx512bw,+avx512vl"])
def test_copies_compile_for_any_x86(features: str, tmp_path: Path) -> None:
    from kintune.compiler.kernels.copies import copying_text

    made = compiled(copying_text(converts=False).whole, features, tmp_path)
    assert all(name in made for name in (b"kt_round", b"kt_copy", b"kt_zero"))


@pytest.mark.parametrize("converts", [False, True])
def test_floats_are_rounded_to_the_nearest(converts: bool, tmp_path: Path) -> None:
    """All signs, exponents and upper digits, with lower ones around ties; denormals may become zero."""
    from kintune.compiler.kernels.copies import copying_text

    needs("avx512bf16")  # elsewhere rounding is a function of compilers' own libraries; no program for x86 has it there
    low = np.array((0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF), np.uint32)
    floats = ((np.arange(1 << 16, dtype=np.uint32) << 16)[:, None] | low).reshape(-1).view(np.float32)
    found = np.zeros(floats.size, np.uint16)
    library = ctypes.CDLL(str(library_of(copying_text(converts=converts).whole, tmp_path)))
    library.kt_round(ctypes.c_void_p(floats.ctypes.data), ctypes.c_void_p(found.ctypes.data), floats.size, 64)
    rounded, is_nan = widened(found), np.isnan(floats)
    np.testing.assert_array_equal(np.isnan(rounded), is_nan)
    least = np.finfo(np.float32).tiny
    tiny = np.abs(floats) < least
    kept = ~is_nan & ~tiny
    np.testing.assert_array_equal(found[kept], bits(floats)[kept])
    assert np.abs(rounded[tiny]).max() <= least
