"""Candidates that misbehave, as built artifacts: what a tuner must survive and tell apart.

Each is a real shared library with the interface of a compiled kernel, written in C: what a compiler's bug or an
impossible schedule does at its worst.  All take any number of float32 arguments, of which the last is the output.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from enum import Enum
from pathlib import Path

import tvm_ffi.libinfo

from kintune.core.stage_requests import Built, KernelArgument
from kintune.hardware.toolchain import find_linker

__all__ = ["Poison", "compile_kernel", "poisoned"]


class Poison(Enum):
    """A way to misbehave; the value is the body of the kernel, in C."""

    SEGFAULT = "*(volatile int *)0 = 1;"
    ABORT = "abort();"
    EXIT = "_exit(0);"
    HANG = "for (volatile int spin = 0;; ++spin) { }"
    OUT_OF_MEMORY = "while (malloc(1 << 26)) { } abort();"
    ERROR = 'TVMFFIErrorSetRaisedFromCStr("ValueError", "poisoned"); return -1;'
    NAN = "fill(out, NAN);"
    NOTHING = ""
    ZEROS = "fill(out, 0.0f);"
    WRONG_NUMBERS = "fill(out, 42.0f);"
    OUT_OF_BOUNDS = "fill(out, 42.0f); values(out)[elements(out) + 3] = 1.0f;"
    SPOILED_INPUT = "fill(out, 42.0f); values(argument(args, 0))[0] += 1.0f;"
    LOST_HEAP = "fill(out, 42.0f); memset(values(out), 1, 1 << 30);"


_SOURCE = """
HEAD
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <tvm/ffi/c_api.h>

static DLTensor *argument(const TVMFFIAny *args, int i) {
  return args[i].type_index == kTVMFFIDLTensorPtr
    ? (DLTensor *)args[i].v_ptr : (DLTensor *)((char *)args[i].v_obj + sizeof(TVMFFIObject));
}
static float *values(DLTensor *t) { return (float *)((char *)t->data + t->byte_offset); }
static int64_t elements(DLTensor *t) {
  int64_t n = 1;
  for (int i = 0; i < t->ndim; ++i) n *= t->shape[i];
  return n;
}
static void fill(DLTensor *t, float value) { for (int64_t i = 0; i < elements(t); ++i) values(t)[i] = value; }

int __tvm_ffi_main(void *self, const TVMFFIAny *args, int32_t count, TVMFFIAny *result) {
  DLTensor *out = argument(args, count - 1);
  (void)self; (void)result; (void)out; (void)fill;
  BODY
  return 0;
}
"""


def poisoned(poison: Poison, operands: Sequence[KernelArgument]) -> Built:
    """An artifact that takes `operands` and misbehaves; its candidate digest is the poison's name."""
    return Built(candidate=poison.name, artifact=compile_kernel(poison.value), operands=tuple(operands))


def compile_kernel(body: str, head: str = "") -> bytes:
    """A shared library of a kernel with this body (C), in which `out` is the output and `argument(args, i)` the i-th.

    `values(t)` and `elements(t)` give a tensor's data and size, `fill(t, x)` sets all of it.  `head` stands before
    everything else.
    """
    with tempfile.TemporaryDirectory(prefix="kintune-poison-") as folder:
        source, library = Path(folder) / "kernel.c", Path(folder) / "kernel.so"
        source.write_text(_SOURCE.replace("BODY", body).replace("HEAD", head))
        includes = [f"-I{tvm_ffi.libinfo.find_include_path()}", f"-I{tvm_ffi.libinfo.find_dlpack_include_path()}"]
        command = [find_linker(), "-shared", "-fPIC", "-O0", *includes, "-o", str(library), str(source)]
        subprocess.run(command, check=True, capture_output=True)
        return library.read_bytes()
