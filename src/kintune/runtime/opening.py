"""Opens an executable of either kind."""

from __future__ import annotations

import os

from kintune.hardware.gpus import is_gpu
from kintune.runtime.executable import Executable
from kintune.runtime.package import read_manifest
from kintune.runtime.vm_executable import VmExecutable

__all__ = ["open_executable"]


def open_executable(path: str | os.PathLike[str]) -> Executable | VmExecutable:
    """Open a saved executable, for this machine's CPU or its first GPU.

    It holds machine code that will run with your rights: open only what you trust.

    Raises:
        InputError: the file is missing, damaged or no Kintune executable, or made for another format, CPU or GPU.
    """
    return VmExecutable.open(path) if is_gpu(read_manifest(path).target) else Executable.open(path)
