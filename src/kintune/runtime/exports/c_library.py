"""Exports a `.kt` file for programs in C and C++: the runtime's library and headers, the model, an example."""

from __future__ import annotations

import shutil
from pathlib import Path

from kintune.errors import InputError
from kintune.runtime.exports.folder import write_folder
from kintune.runtime.exports.runtime_files import runtime_files
from kintune.runtime.exports.source import open_source

__all__ = ["LIBRARY_NAME", "MODEL_NAME", "export_c"]

LIBRARY_NAME, MODEL_NAME = "libkintune.so", "model.kt"

_FILES = (
    LIBRARY_NAME,
    "include/kintune.h",
    "include/kintune.hpp",
    "example/example.c",
    "example/CMakeLists.txt",
    "example/kintune.pc",
)


def export_c(model: Path, folder: Path, runtime: Path | None = None) -> Path:
    """Write `folder` with `model.kt`, `libkintune.so`, `kintune.h`, `kintune.hpp`, `example.c`, and files for CMake and
    pkg-config.  All of the folder is written, or nothing; returns its path.

    The runtime is that in the wheel `runtime`, by default the one installed here; it must be for the model's machine.

    Raises:
        InputError: the model is missing, damaged, of another format or not for CPUs, it runs partly in onnxruntime, the
            runtime is for another machine or its wheel cannot be read, or the folder is not empty or cannot be written.
        KintuneError: the runtime is not installed whole.
    """
    model, package = open_source(model)
    if package.manifest.hybrid is not None:
        raise InputError(
            f"{model}: {package.manifest.hybrid.summary}, which a program in C or C++ loads by itself: export it with"
            " --to onnx, or with --to wheel for Python"
        )
    files = runtime_files(model, package.manifest.machine, _FILES, runtime)

    def fill(made: Path) -> None:
        shutil.copyfile(model, made / MODEL_NAME)
        for name in _FILES:
            (made / Path(name).name).write_bytes(files[name])

    return write_folder(folder, fill)
