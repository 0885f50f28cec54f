"""Compiled programs as shared libraries in bytes: made, and loaded into this process."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import tvm_ffi

from kintune.measure.linker import linking_for

__all__ = ["library_of", "load_artifact"]


def library_of(executable: Any, architecture: str) -> bytes:
    """The shared library, for machines of this architecture, of what the compiler has made for them.

    Raises BuildError and OrderError as `linker.link` does, and whatever the compiler raises.
    """
    with tempfile.TemporaryDirectory(prefix="kintune-build-") as folder:
        path = Path(folder) / "artifact.so"
        executable.export_library(str(path), fcompile=linking_for(architecture), workspace_dir=folder)
        return path.read_bytes()


def load_artifact(artifact: bytes) -> Any:
    """The runtime module of a shared library in bytes; its file is gone when this returns.

    The library is unloaded with the last reference to the module or one of its functions.  The runtime would keep it
    by default, and after some ten thousand candidates the process could map no more memory.

    Raises:
        RuntimeError: it is not a shared library that this process can load.
    """
    with tempfile.NamedTemporaryFile(prefix="kintune-", suffix=".so") as file:
        file.write(artifact)
        file.flush()
        return tvm_ffi.load_module(file.name, keep_module_alive=False)
