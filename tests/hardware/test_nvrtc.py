"""The binding, by a library of the same interface in C; the real one is tested where its toolkit is installed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kintune.errors import BuildError
from kintune.hardware.nvrtc import Nvrtc

STAND_IN = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
struct program { char text[65536]; char log[256]; };
int nvrtcCreateProgram(struct program** made, const char* source, const char* name, int count, const char** texts,
                       const char** names) {
  *made = calloc(1, sizeof(struct program));
  snprintf((*made)->text, 65536, "%s|%s|%d|%s|%s", name, source, count, names[0], names[1]);
  return strstr(source, "too long") ? 3 : 0;
}
int nvrtcCompileProgram(struct program* it, int count, const char** options) {
  for (int i = 0; i < count; i++) strcat(strcat(it->text, "|"), options[i]);
  if (!strstr(it->text, "bad")) return 0;
  strcpy(it->log, "a remark\nkernels.cu(1): error: bad is undefined\n");
  return 6;
}
int nvrtcGetProgramLogSize(struct program* it, size_t* size) { *size = strlen(it->log) + 1; return 0; }
int nvrtcGetProgramLog(struct program* it, char* log) { strcpy(log, it->log); return 0; }
int nvrtcGetCUBINSize(struct program* it, size_t* size) { *size = strlen(it->text); return 0; }
int nvrtcGetCUBIN(struct program* it, char* cubin) { memcpy(cubin, it->text, strlen(it->text)); return 0; }
int nvrtcDestroyProgram(struct program** it) { free(*it); *it = 0; return 0; }
const char* nvrtcGetErrorString(int status) { return status == 3 ? "NVRTC_ERROR_INVALID_INPUT" : "no such status"; }
"""


@pytest.fixture
def toolkit(tmp_path: Path) -> Path:
    (tmp_path / "lib64").mkdir()
    (tmp_path / "include").mkdir()
    source = tmp_path / "nvrtc.c"
    source.write_text(STAND_IN)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "lib64" / "libnvrtc.so.13", source], check=True)
    return tmp_path


def test_a_source_is_compiled_for_an_architecture_with_the_headers_it_uses(toolkit: Path) -> None:
    library = Nvrtc.load(toolkit)
    assert library is not None
    made = library.compile("void f();", "sm_90").decode()
    assert made.startswith("kernels.cu|void f();|2|cuda/std/cstdint|cuda/std/type_traits|--gpu-architecture=sm_90|")
    assert made.endswith(f"--include-path={toolkit / 'include'}")


def test_the_first_error_is_told_in_one_line(toolkit: Path) -> None:
    library = Nvrtc.load(toolkit)
    assert library is not None
    with pytest.raises(BuildError, match=r"^NVRTC failed: kernels.cu\(1\): error: bad is undefined$"):
        library.compile("bad", "sm_90")
    with pytest.raises(BuildError, match="NVRTC_ERROR_INVALID_INPUT"):
        library.compile("too long", "sm_90")


def test_a_toolkit_may_lack_it(tmp_path: Path) -> None:
    assert Nvrtc.load(tmp_path) is None
