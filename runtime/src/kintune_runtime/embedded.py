"""A `.kt` file inside another one, where it is stored without compression: it is mapped in place."""

from __future__ import annotations

import ctypes
import os

from .executable import Executable

__all__ = ["EmbeddedExecutable"]


class EmbeddedExecutable(Executable):
    """A network in a member of a `.kt` file."""

    def __init__(self, path: str | os.PathLike[str], member: str, name: str = "") -> None:
        """Map and open it; messages call the file `name`, by default by its path.

        Raises:
            InputError: the file cannot be read, or is damaged, or is for another CPU.
        """
        self._member = member
        super().__init__(path, None, name)

    def _load(self, path: str, variant: int | None, name: str) -> None:
        del variant
        model = ctypes.c_void_p()
        names = map(os.fsencode, (path, self._member, name))
        self._take(self._native.kt_open_member(*names, ctypes.byref(model)), model)
