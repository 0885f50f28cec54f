"""Makes a tensor that begins inside another one, in a form that kernels accept.

The compiler's own views have a byte offset, which kernels refuse; this one has the address itself, through DLPack.
"""

from __future__ import annotations

import ctypes
from typing import Any

import tvm

__all__ = ["part_of"]

_NAME = b"dltensor"
_UNSIGNED = 1  # DLPack's kDLUInt


class _Device(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("id", ctypes.c_int32))


class _Dtype(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _Dtype),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter))


_KEPT: dict[int, tuple[Any, ...]] = {}
"""Objects that only addresses refer to, by the address of their `_Managed`; they must not be collected."""


@_Deleter  # type: ignore[untyped-decorator]
def _forget(address: int) -> None:
    """Drops a part; the compiler's runtime calls it with the last reference."""
    _KEPT.pop(address, None)


class _Part:
    """An object that `from_dlpack` accepts."""

    def __init__(self, managed: _Managed) -> None:
        self._managed = managed

    def __dlpack_device__(self) -> tuple[int, int]:
        device = self._managed.tensor.device
        return int(device.type), int(device.id)

    def __dlpack__(self, **_: Any) -> Any:
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        return new(ctypes.addressof(self._managed), _NAME, None)


def part_of(tensor: Any, begin: int, nbytes: int) -> Any:
    """Returns `nbytes` bytes from `begin`, a multiple of 64, of a tensor of bytes as a tensor that keeps it alive."""
    kind, number = tensor.__dlpack_device__()
    shape = (ctypes.c_int64 * 1)(nbytes)
    part = _Tensor(tensor.data_ptr() + begin, _Device(kind, number), 1, _Dtype(_UNSIGNED, 8, 1), shape, None, 0)
    managed = _Managed(part, None, _forget)
    _KEPT[ctypes.addressof(managed)] = (managed, shape, tensor)
    return tvm.runtime.from_dlpack(_Part(managed))
