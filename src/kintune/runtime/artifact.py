"""Artifacts: compiled programs as shared libraries in bytes, linked and loaded into this process."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tvm_ffi

from kintune.hardware.toolchain import link, linking_for

__all__ = ["Linked", "library_of", "library_of_objects", "link_program", "load_artifact", "object_of"]


class Linked(NamedTuple):
    """A shared library, and the object file that it was linked from, which is empty where there were several."""

    library: bytes
    object_file: bytes


def link_program(executable: Any, architecture: str, object_files: Sequence[bytes] = ()) -> Linked:
    """Link what the compiler has made, with further object files, for machines of this architecture.

    Raises:
        BuildError: the linker fails.
        OrderError: there is no linker for this architecture.
        Exception: of the compiler's own kinds.
    """
    with tempfile.TemporaryDirectory(prefix="kintune-build-") as folder:
        library = Path(folder) / "artifact.so"
        kernels = [Path(folder) / f"kernel{number}.o" for number in range(len(object_files))]
        for kernel, content in zip(kernels, object_files, strict=True):
            kernel.write_bytes(content)
        executable.export_library(
            str(library),
            fcompile=linking_for(architecture),
            addons=[str(kernel) for kernel in kernels],
            workspace_dir=folder,
        )
        made = [path for path in Path(folder).glob("*.o") if path not in kernels]
        return Linked(library.read_bytes(), made[0].read_bytes() if len(made) == 1 else b"")


def library_of(executable: Any, architecture: str, object_files: Sequence[bytes] = ()) -> bytes:
    """Links as `link_program` does, and returns the shared library alone."""
    return link_program(executable, architecture, object_files).library


def library_of_objects(object_files: Sequence[bytes], architecture: str) -> bytes:
    """Link object files into a shared library for machines of this architecture.

    Raises:
        BuildError: the linker fails.
        OrderError: there is no linker for this architecture.
    """
    with tempfile.TemporaryDirectory(prefix="kintune-build-") as folder:
        library, paths = Path(folder) / "artifact.so", []
        for number, content in enumerate(object_files):
            paths.append(Path(folder) / f"kernel{number}.o")
            paths[-1].write_bytes(content)
        link(str(library), list(map(str, paths)), architecture)
        return library.read_bytes()


def object_of(module: Any) -> bytes:
    """The object file of a runtime module, as the compiler makes it for a CPU.

    Raises:
        Exception: of the compiler's own kinds.
    """
    with tempfile.TemporaryDirectory(prefix="kintune-build-") as folder:
        path = Path(folder) / "program.o"
        module.write_to_file(str(path), "o")
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
