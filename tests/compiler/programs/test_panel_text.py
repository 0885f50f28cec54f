"""The inner kernels are valid LLVM for any x86, whatever this CPU has."""

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
    from kintune.compiler.programs.panel_text import copying_text

    made = compiled(copying_text(converts=False), features, tmp_path)
    assert all(name in made for name in (b"kt_round", b"kt_copy", b"kt_move", b"kt_zero"))


def test_tiles_compile(tmp_path: Path) -> None:
    from kintune.compiler.programs.panel_text import amx_text, copying_text

    text = copying_text(converts=True) + amx_text()
    made = compiled(text, "+avx512f,+avx512bw,+avx512vl,+avx512bf16,+amx-tile,+amx-bf16", tmp_path)
    assert made.count(bytes.fromhex("c4e2")) >= 2 * 4  # tdpbf16ps and tile loads have this prefix


@pytest.mark.parametrize("rows", [1, 6, 7])
@pytest.mark.parametrize("kind", ["dot", "fma"])
def test_vectors_compile(kind: str, rows: int, tmp_path: Path) -> None:
    from kintune.compiler.programs.panel_text import copying_text, vector_text

    text = copying_text(converts=kind == "dot") + vector_text(kind, rows, 4)
    features = "+avx512f,+avx512bw,+avx512vl" + (",+avx512bf16" if kind == "dot" else "")
    assert f"kt_{kind}_{rows}".encode() in compiled(text, features, tmp_path)
