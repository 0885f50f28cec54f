"""The runtime's library, by its interface in C (`kintune.h`)."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from .errors import InputError, KintuneError, RunError

__all__ = [
    "Buffer",
    "Described",
    "DescribedVariant",
    "Hook",
    "OpenOptions",
    "Options",
    "Range",
    "Shape",
    "checksum",
    "denormal_calls",
    "library",
    "raise_for",
]

_PATH = Path(__file__).with_name("libkintune.so")
_VERSION = 1  # of the interface

_INPUT_ERRORS = frozenset({1, 2, 3, 4, 7, 9})  # argument, file, format, unsupported, value, untrusted


class Buffer(ctypes.Structure):
    """`kt_buffer`."""

    _fields_ = (("data", ctypes.c_void_p), ("nbytes", ctypes.c_size_t))


class Described(ctypes.Structure):
    """`kt_tensor`."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("rank", ctypes.c_int32),
        ("kind", ctypes.c_int),
        ("bits", ctypes.c_int32),
        ("nbytes", ctypes.c_size_t),
    )


class Range(ctypes.Structure):
    """`kt_range`."""

    _fields_ = (("least", ctypes.c_int64), ("greatest", ctypes.c_int64), ("step", ctypes.c_int64))


class Shape(ctypes.Structure):
    """`kt_shape`."""

    _fields_ = (("extents", ctypes.POINTER(ctypes.c_int64)), ("rank", ctypes.c_int32))


class DescribedVariant(ctypes.Structure):
    """`kt_variant`."""

    _fields_ = (
        ("number", ctypes.c_int32),
        ("total", ctypes.c_int32),
        ("machine", ctypes.c_char_p),
        ("cpu", ctypes.c_char_p),
        ("isa", ctypes.c_char_p),
        ("threads", ctypes.c_int32),
    )


class Options(ctypes.Structure):
    """`kt_options`, without a function of the caller's."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("threads", ctypes.c_int32),
        ("parallel_for", ctypes.c_void_p),
        ("user", ctypes.c_void_p),
    )


class OpenOptions(ctypes.Structure):
    """`kt_open_options`."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("variant", ctypes.c_int32),
        ("copy", ctypes.c_int32),
        ("name", ctypes.c_char_p),
        ("trusted", ctypes.c_void_p),
    )


Hook = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32, ctypes.c_int64)

_POINTER, _STATUS = ctypes.c_void_p, ctypes.c_int
_SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "kt_version": (ctypes.c_uint32, ()),
    "kt_last_error": (ctypes.c_char_p, ()),
    "kt_open_with": (_STATUS, (ctypes.c_char_p, ctypes.POINTER(OpenOptions), ctypes.POINTER(_POINTER))),
    "kt_open_member": (_STATUS, (*(ctypes.c_char_p,) * 3, ctypes.POINTER(_POINTER))),
    "kt_close": (None, (_POINTER,)),
    "kt_manifest": (_POINTER, (_POINTER, ctypes.POINTER(ctypes.c_size_t))),
    "kt_describe_variant": (_STATUS, (_POINTER, ctypes.POINTER(DescribedVariant))),
    "kt_plan_count": (ctypes.c_int32, (_POINTER,)),
    "kt_input_count": (ctypes.c_int32, (_POINTER,)),
    "kt_output_count": (ctypes.c_int32, (_POINTER,)),
    "kt_describe_input": (_STATUS, (_POINTER, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(Described))),
    "kt_describe_output": (_STATUS, (_POINTER, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(Described))),
    "kt_context_create": (_STATUS, (_POINTER, ctypes.c_int32, ctypes.POINTER(Options), ctypes.POINTER(_POINTER))),
    "kt_describe_range": (_STATUS, (_POINTER, *(ctypes.c_int32,) * 3, ctypes.POINTER(Range))),
    "kt_context_set_shapes": (_STATUS, (_POINTER, ctypes.POINTER(Shape), ctypes.c_int32)),
    "kt_context_describe_input": (_STATUS, (_POINTER, ctypes.c_int32, ctypes.POINTER(Described))),
    "kt_context_describe_output": (_STATUS, (_POINTER, ctypes.c_int32, ctypes.POINTER(Described))),
    "kt_set_hook": (_STATUS, (_POINTER, Hook, _POINTER)),
    "kt_run": (_STATUS, (_POINTER, _POINTER, ctypes.c_int32, _POINTER, ctypes.c_int32)),
    "kt_context_close": (None, (_POINTER,)),
    "kt_checksum": (ctypes.c_uint64, (_POINTER, ctypes.c_size_t)),
    "kt_denormals_set": (ctypes.c_uint64, (ctypes.c_int,)),
    "kt_denormals_restore": (None, (ctypes.c_uint64,)),
    "kt_denormals_watch": (ctypes.c_uint64, ()),
    "kt_denormals_met": (ctypes.c_int, ()),
    "kt_skip_destructors": (ctypes.c_int, ()),
    "kt_memory_file": (ctypes.c_int, ()),
}


@cache
def library() -> ctypes.CDLL:
    """The library, loaded: the one beside this file, or the one that `KINTUNE_LIBRARY` names.

    Raises:
        KintuneError: it is missing, or of another interface.
    """
    path = os.environ.get("KINTUNE_LIBRARY", str(_PATH))
    try:
        loaded = ctypes.CDLL(path)
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(loaded, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise KintuneError(f"the runtime's library cannot be loaded: {error}; install kintune-runtime again") from error
    if loaded.kt_version() >> 16 != _VERSION:
        raise KintuneError(f"{path} is of another version; install kintune-runtime again")
    return loaded


@cache
def denormal_calls() -> tuple[Callable[[int], int], Callable[[int], None]]:
    """`kt_denormals_set` and `kt_denormals_restore`, made to take 0.2 us: they keep the interpreter's lock.

    Raises:
        KintuneError: as for `library`.
    """
    loaded = ctypes.PyDLL(library()._name)
    names = ("kt_denormals_set", "kt_denormals_restore")
    for name in names:
        function = getattr(loaded, name)
        function.restype, function.argtypes = _SIGNATURES[name]
    return loaded.kt_denormals_set, loaded.kt_denormals_restore


def raise_for(status: int) -> NoReturn:
    """Raise the error for a status other than 0, with the text of the last failure.

    Raises:
        InputError: a file, an argument or an array is wrong.
        RunError: memory is exhausted, the context is in use, or a kernel failed.
    """
    text = library().kt_last_error().decode(errors="replace")
    kind: Callable[[str], KintuneError] = InputError if status in _INPUT_ERRORS else RunError
    raise kind(text)


def checksum(data: Any) -> int:
    """The checksum of a bytes-like object's contents, as the library verifies it."""
    view = memoryview(data).cast("B")
    if view.nbytes == 0:
        return int(library().kt_checksum(None, 0))
    if view.readonly:
        import numpy as np

        array = np.frombuffer(view, np.uint8)
        return int(library().kt_checksum(array.__array_interface__["data"][0], array.nbytes))
    return int(library().kt_checksum(ctypes.addressof(ctypes.c_char.from_buffer(view)), view.nbytes))
