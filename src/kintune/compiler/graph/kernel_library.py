"""The shared library of a network's kernels, which can be loaded without TVM."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi

from kintune.runtime.artifact import library_of, object_of
from kintune.runtime.target import architecture_of, triple_of

__all__ = ["build_kernels"]

_PARTS = 8
"""Modules that the functions of a library are dealt to: each costs the compiler some 40 ms."""

_RAISE = """target triple = "{triple}"

@kintune_raise = protected global ptr null, align 8

define hidden void @TVMFFIErrorSetRaisedFromCStrParts(ptr %kind, ptr %parts, i32 %count) {{
  %raise = load ptr, ptr @kintune_raise, align 8
  %unset = icmp eq ptr %raise, null
  br i1 %unset, label %done, label %call

call:
  tail call void %raise(ptr %kind, ptr %parts, i32 %count)
  br label %done

done:
  ret void
}}
"""
"""What kernels call to say why they refuse their arguments: it calls what `kintune_raise` points to, if anything.

The variable is exported; `protected` keeps the one of another library from taking its place.
"""


def build_kernels(
    module: tvm.IRModule, target: tvm.target.Target, object_files: Sequence[bytes] = (), threads: int = 1
) -> bytes:
    """Compile a module of PrimFuncs, at least one, for a CPU, and link them with `object_files`.

    These define further kernels.  Each function is exported as `__tvm_ffi_NAME`, NAME being its global symbol.  So many
    threads compile; the library does not depend on their number.

    Raises:
        BuildError: the linker fails.
        OrderError: there is no linker for the target's architecture.
        Exception: of the compiler's own kinds.
    """
    functions = sorted(module.functions_items(), key=lambda item: str(item[0].name_hint))
    first, *others = (
        tvm.IRModule(dict(functions[start::_PARTS]), attrs=module.attrs) for start in range(min(_PARTS, len(functions)))
    )

    def compiled(part: tvm.IRModule) -> Any:
        with target:  # of this thread
            return tvm.tirx.build(part, target=target, pipeline="default")

    with ThreadPoolExecutor(threads) as pool:
        main = pool.submit(compiled, first)
        objects = list(pool.map(lambda part: object_of(compiled(part)), others))
    return library_of(main.result(), architecture_of(target), [*objects, *object_files, _raising(triple_of(target))])


@cache
def _raising(triple: str) -> bytes:
    """The object file of `_RAISE` for a target triple."""
    with tempfile.TemporaryDirectory(prefix="kintune-build-") as folder:
        source, made = Path(folder) / "raise.ll", Path(folder) / "raise.o"
        source.write_text(_RAISE.format(triple=triple))
        tvm_ffi.load_module(str(source)).write_to_file(str(made), "o")
        return made.read_bytes()
