"""NVIDIA's run-time compilation library (NVRTC): machine code of a GPU from a CUDA source, in this process.

It takes a fraction of the time of nvcc, which starts five programs and also compiles the source for the host.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from kintune.errors import BuildError

__all__ = ["Nvrtc"]

_LIBRARY = "libnvrtc.so.13"
_BUILTINS = "libnvrtc-builtins.so.13.*"
_NAME = b"kernels.cu"
_QUIET = b"--diag-suppress=177"  # a variable that is not used

_CSTDINT = b"""
namespace cuda { namespace std {
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
} }
"""

_INTEGERS = (
    "bool", "char", "signed char", "unsigned char", "short", "unsigned short", "int", "unsigned int", "long",
    "unsigned long", "long long", "unsigned long long",
)  # fmt: skip

_TYPE_TRAITS = f"""
namespace cuda {{ namespace std {{
template <bool B> struct truth {{ static constexpr bool value = B; }};
template <class A, class B> struct is_same : truth<false> {{}};
template <class A> struct is_same<A, A> : truth<true> {{}};
template <class A, class B> inline constexpr bool is_same_v = is_same<A, B>::value;
template <class A> struct is_floating_point : truth<is_same_v<A, float> || is_same_v<A, double>> {{}};
template <class A> struct is_integral : truth<false> {{}};
{"".join(f"template <> struct is_integral<{kind}> : truth<true> {{}};" for kind in _INTEGERS)}
template <class A, bool = is_integral<A>::value || is_floating_point<A>::value> struct is_signed : truth<false> {{}};
template <class A> struct is_signed<A, true> : truth<(A(-1) < A(0))> {{}};
template <class A, bool = is_integral<A>::value> struct is_unsigned : truth<false> {{}};
template <class A> struct is_unsigned<A, true> : truth<(A(0) < A(-1))> {{}};
template <bool B, class A = void> struct enable_if {{}};
template <class A> struct enable_if<true, A> {{ typedef A type; }};
template <bool B, class A, class C> struct conditional {{ typedef A type; }};
template <class A, class C> struct conditional<false, A, C> {{ typedef C type; }};
}} }}
""".encode()

_HEADERS = {b"cuda/std/cstdint": _CSTDINT, b"cuda/std/type_traits": _TYPE_TRAITS}
"""Short replacements of the toolkit's C++ headers that generated sources include.

They define what the sources use; the originals are thirty times as long as a kernel.
"""


class Nvrtc:
    """The loaded library; `include` are directories of further headers, such as that of half precision."""

    def __init__(self, library: ctypes.CDLL, include: Sequence[Path]) -> None:
        self._library = library
        library.nvrtcGetErrorString.restype = ctypes.c_char_p
        self._include = [f"--include-path={folder}".encode() for folder in include if folder.is_dir()]

    @classmethod
    def load(cls, toolkit: Path) -> Nvrtc | None:
        """Load it from a toolkit's directory; None where the toolkit has none."""
        for folder in (toolkit / "lib64", toolkit / "lib"):
            with suppress(OSError):
                for builtins in folder.glob(_BUILTINS):
                    ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
                return cls(ctypes.CDLL(str(folder / _LIBRARY)), (toolkit / "include",))
        return None

    def compile(self, code: str, architecture: str) -> bytes:
        """Compile a source for an architecture such as "sm_90"; returns a cubin (ELF).

        Raises:
            BuildError: it does not compile; the message is the first error, one line.
        """
        program = ctypes.c_void_p()
        names, texts = (ctypes.c_char_p * len(_HEADERS))(*_HEADERS), (ctypes.c_char_p * len(_HEADERS))()
        texts[:] = list(_HEADERS.values())
        self._check(
            self._library.nvrtcCreateProgram(
                ctypes.byref(program), code.encode(), _NAME, len(_HEADERS), texts, names
            )
        )  # fmt: skip
        try:
            options = [f"--gpu-architecture={architecture}".encode(), _QUIET, *self._include]
            given = (ctypes.c_char_p * len(options))(*options)
            status = self._library.nvrtcCompileProgram(program, len(options), given)
            if status:
                log = self._text(program, "ProgramLog").decode(errors="replace")
                first = next((line.strip() for line in log.splitlines() if "error" in line), "")
                raise BuildError(f"NVRTC failed: {first or self._named(status)}"[:300])
            return self._text(program, "CUBIN")
        finally:
            self._library.nvrtcDestroyProgram(ctypes.byref(program))

    def _text(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._check(self._function(f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
        buffer = ctypes.create_string_buffer(size.value)
        self._check(self._function(f"nvrtcGet{what}")(program, buffer))
        return buffer.raw

    def _function(self, name: str) -> Any:
        return getattr(self._library, name)

    def _check(self, status: int) -> None:
        if status:
            raise BuildError(f"NVRTC failed: {self._named(status)}")

    def _named(self, status: int) -> str:
        return bytes(self._library.nvrtcGetErrorString(status)).decode(errors="replace")
