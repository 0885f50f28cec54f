"""A `.kt` file inside another one, where it is stored without compression: it is mapped in place."""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import zipfile

from .errors import InputError
from .executable import Executable
from .library import raise_for

__all__ = ["EmbeddedExecutable"]

_HEADER = struct.Struct("<4s5H3L2H")


class EmbeddedExecutable(Executable):
    """A network in a member of a zip file, which must lie at a multiple of 64 bytes."""

    def __init__(self, path: str | os.PathLike[str], member: str) -> None:
        """Map and open it.

        Raises:
            InputError: the file cannot be read, or is damaged, or is for another CPU.
        """
        self._member = member
        super().__init__(path)

    def _load(self, path: str | os.PathLike[str], variant: int | None) -> None:
        del variant
        try:
            with open(path, "rb") as file, zipfile.ZipFile(file) as archive:
                about = archive.getinfo(self._member)
                file.seek(about.header_offset)
                name, extra = _HEADER.unpack(file.read(_HEADER.size))[-2:]
                start = about.header_offset + _HEADER.size + name + extra
                self._memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        except (OSError, zipfile.BadZipFile, KeyError, ValueError, struct.error) as error:
            raise InputError(f"{os.fspath(path)}: {self._member} cannot be read: {error}") from error
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory, start))
        model = ctypes.c_void_p()
        if status := self._native.kt_open_memory(address, about.file_size, ctypes.byref(model)):
            raise_for(status)
        self._model = model
        self._plans = [self._tensors(plan) for plan in range(self._native.kt_plan_count(model))]
