"""Functions that copy rows are valid LLVM for any x86, whatever this CPU has."""

from __future__ import annotations

from pathlib import Path

import pytest

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
