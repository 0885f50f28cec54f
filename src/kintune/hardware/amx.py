"""Permission to use AMX tiles, which Linux gives a process that asks for it."""

from __future__ import annotations

import ctypes
import platform
from functools import cache

__all__ = ["permit_amx"]

_ARCH_PRCTL = 158  # the number of the system call on x86_64
_REQUEST, _TILE_DATA = 0x1023, 18


@cache
def permit_amx() -> bool:
    """Ask the kernel for the use of AMX tiles by all threads of this process; returns whether it may use them.

    It may not where the CPU has none, or the kernel of the system does not know them.
    """
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return False
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    return int(call(ctypes.c_long(_ARCH_PRCTL), ctypes.c_long(_REQUEST), ctypes.c_long(_TILE_DATA))) == 0
