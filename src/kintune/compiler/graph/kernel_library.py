"""Builds the shared library of a network's kernels, which can be loaded without TVM."""

from __future__ import annotations

import tempfile
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import tvm
import tvm_ffi

from kintune.compiler.bounds import Proof, keeping_lowered, prove
from kintune.compiler.faults import build_for
from kintune.runtime.artifact import library_of_objects, object_of
from kintune.runtime.target import architecture_of, triple_of

__all__ = ["BuiltKernel", "KernelLibrary", "RefusedKernels", "build_kernels"]


class BuiltKernel(NamedTuple):
    """The object file of a kernel, what was compiled, as `kintune.compiler.bounds` reads it, and its proof."""

    object_file: bytes
    lowered: tvm.tirx.PrimFunc
    proof: Proof


class KernelLibrary(NamedTuple):
    """A shared library, and the kernels that were compiled for it, by name."""

    content: bytes
    kernels: dict[str, BuiltKernel]


class RefusedKernels(Exception):
    """The compiler refuses functions: `names` are their global symbols, the cause is its error for the first."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(", ".join(names))
        self.names = tuple(names)


def build_kernels(
    module: tvm.IRModule, target: tvm.target.Target, object_files: Sequence[bytes] = (), threads: int = 1
) -> KernelLibrary:
    """Compile a module of PrimFuncs, at least one, for a CPU, and link them with `object_files`.

    These define further kernels.  Each function is exported as `__tvm_ffi_NAME`, NAME being its global symbol.
    `threads` functions are compiled at once; the library does not depend on this number.

    Raises:
        BuildError: when the linker fails.
        OrderError: when there is no linker for the target's architecture.
        RefusedKernels: when some of the functions do not compile; all are tried.
    """
    functions = sorted(module.functions_items(), key=lambda item: str(item[0].name_hint))

    def compiled(number: int) -> BuiltKernel:
        variable, function = functions[number]
        return _OBJECTS.compile(variable, function, module.attrs, target)

    with ThreadPoolExecutor(threads) as pool:
        made = [pool.submit(compiled, number) for number in range(len(functions))]
    refused = {number: error for number, each in enumerate(made) if (error := each.exception()) is not None}
    if refused:
        names = [str(functions[number][1].attrs["global_symbol"]) for number in refused]
        raise RefusedKernels(names) from next(iter(refused.values()))
    kernels = {
        str(function.attrs["global_symbol"]): each.result() for (_, function), each in zip(functions, made, strict=True)
    }
    objects = [*(each.object_file for each in kernels.values()), *object_files, _raising(triple_of(target))]
    return KernelLibrary(library_of_objects(objects, architecture_of(target)), kernels)


class _Objects:
    """A cache of the object files of the functions compiled last, up to `most_bytes` bytes in total.

    A job compiles its network a few times (before its search, to try precisions, and at the end), and most kernels are
    the same each time.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._known: OrderedDict[tuple[str, str, int], tuple[Any, BuiltKernel]] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def compile(self, variable: Any, function: Any, attributes: Any, target: tvm.target.Target) -> BuiltKernel:
        """A function as a kernel; it is compiled unless it is in the cache."""
        key = str(target), str(variable.name_hint), tvm_ffi.structural_hash(function, map_free_vars=True)
        with self._lock:
            known = self._known.get(key)
            if known is not None:
                self._known.move_to_end(key)
        if known is not None and tvm_ffi.structural_equal(known[0], function, map_free_vars=True):
            return known[1]
        module = tvm.IRModule({variable: function}, attrs=attributes)
        content, functions = build_for(target, lambda chosen: _compiled(module, chosen))
        lowered = functions[str(variable.name_hint)]
        made = BuiltKernel(content, lowered, prove(lowered))
        with self._lock:
            self._keep(key, function, made)
        return made

    def _keep(self, key: tuple[str, str, int], function: Any, made: BuiltKernel) -> None:
        if key in self._known:
            self._bytes -= len(self._known.pop(key)[1].object_file)
        self._known[key] = function, made
        self._bytes += len(made.object_file)
        while self._bytes > self._most_bytes:
            _, (_, dropped) = self._known.popitem(last=False)
            self._bytes -= len(dropped.object_file)


def _compiled(module: tvm.IRModule, target: tvm.target.Target) -> tuple[bytes, dict[str, tvm.tirx.PrimFunc]]:
    """The object file of a module, and its functions as `prove` reads them."""
    with target, keeping_lowered() as functions:  # the current target is a property of the thread
        return object_of(tvm.tirx.build(module, target=target, pipeline="default")), functions


_OBJECTS = _Objects(most_bytes=1 << 26)


@cache
def _raising(triple: str) -> bytes:
    """The object file of the function that kernels call to report refused arguments, for a target triple.

    It calls what `kintune_raise` points to, unless null.  The variable is exported; `protected` keeps it from being
    replaced by that of another library.
    """
    text = f"""target triple = "{triple}"

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
    with tempfile.TemporaryDirectory(prefix="kintune-build-") as folder:
        source, made = Path(folder) / "raise.ll", Path(folder) / "raise.o"
        source.write_text(text)
        tvm_ffi.load_module(str(source)).write_to_file(str(made), "o")
        return made.read_bytes()
