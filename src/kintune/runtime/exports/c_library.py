"""Exports a `.kt` file for programs in C and C++: the runtime's library and headers, the model, an example."""

from __future__ import annotations

import shutil
from pathlib import Path

import kintune_runtime
from kintune.errors import KintuneError
from kintune.files import check_readable
from kintune.runtime.exports.folder import write_folder
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


def export_c(model: Path, folder: Path) -> Path:
    """Write `folder` with `model.kt`, `libkintune.so`, `kintune.h`, `kintune.hpp`, `example.c`, and files for CMake and
    pkg-config.  All of the folder is written, or nothing; returns its path.

    Raises:
        InputError: the model is missing, damaged, of another format or for another machine, or the folder is not empty
            or cannot be written.
        KintuneError: the runtime is not installed whole.
    """
    model = check_readable(model, "the model")
    open_source(model)
    installed = Path(kintune_runtime.__file__).parent
    if missing := [name for name in _FILES if not (installed / name).is_file()]:
        raise KintuneError(f"{installed / missing[0]} is missing; install kintune-runtime again")

    def fill(made: Path) -> None:
        shutil.copyfile(model, made / MODEL_NAME)
        for name in _FILES:
            shutil.copyfile(installed / name, made / Path(name).name)

    return write_folder(folder, fill)
