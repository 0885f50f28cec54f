"""Finds the files of the runtime that an export ships: those installed here, or those in a wheel of kintune-runtime."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import kintune_runtime
from kintune.errors import InputError, KintuneError
from kintune.files import check_readable

__all__ = ["runtime_files"]

_MOST_BYTES = 64 << 20  # those of a wheel take less than one
_PACKAGE = "kintune_runtime"
_ELF_HEADER = struct.Struct("<4s14xH")  # the magic number, and the machine
_MACHINES = {40: "armv7l", 62: "x86_64", 183: "aarch64", 243: "riscv64"}
"""Number of a machine in ELF -> its name, as `platform.machine()` says it."""


def runtime_files(model: Path, machine: str, needed: Sequence[str], wheel: Path | None = None) -> Mapping[str, bytes]:
    """Returns the runtime's files, by their paths in its package; those `needed` are among them.

    They are those in `wheel`, a wheel of kintune-runtime, or those of the runtime that is installed here.  The first of
    the needed ones is a library, which is for `machine`.  `model` is for messages.

    Raises:
        InputError: the wheel is missing, damaged, or none of this version of the runtime, or the library is for another
            machine.
        KintuneError: the runtime is not installed whole.
    """
    if wheel is None:
        installed = Path(kintune_runtime.__file__).parent
        paths = [path for path in sorted(installed.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]
        files = {path.relative_to(installed).as_posix(): path.read_bytes() for path in paths}
        if missing := [name for name in needed if name not in files]:
            raise KintuneError(f"{installed / missing[0]} is missing; install kintune-runtime again")
    else:
        files = _unpacked(check_readable(wheel, "the runtime's wheel"))
        if missing := [name for name in needed if name not in files]:
            raise InputError(f"{wheel}: has no {missing[0]}; build it again, with `make wheel`")
    found = _machine_of(files[needed[0]])
    if found != machine:
        where = "the runtime installed here" if wheel is None else str(wheel)
        raise InputError(
            f"{model}: built for {machine}, {where} is for {found}; name a wheel of the runtime for {machine}, as"
            f" `make wheel` builds it: --runtime {_wheel_name(machine)}"
        )
    return files


def _wheel_name(machine: str) -> str:
    return f"{_PACKAGE}-{kintune_runtime.__version__}-py3-none-manylinux_2_17_{machine}.whl"


def _unpacked(wheel: Path) -> dict[str, bytes]:
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
            if f"{_PACKAGE}-{kintune_runtime.__version__}.dist-info/METADATA" not in names:
                raise InputError(f"{wheel}: no wheel of kintune-runtime {kintune_runtime.__version__}")
            start = f"{_PACKAGE}/"
            wanted = [name for name in names if name.startswith(start) and ".." not in name.split("/")]
            if sum(archive.getinfo(name).file_size for name in wanted) > _MOST_BYTES:
                raise InputError(
                    f"{wheel}: no wheel of kintune-runtime: it unpacks to more than {_MOST_BYTES >> 20} MB"
                )
            return {name[len(start) :]: archive.read(name) for name in wanted}
    except OSError as error:
        raise InputError(f"{wheel}: cannot be read: {error.strerror or error}") from error
    except (zipfile.BadZipFile, EOFError, ValueError, NotImplementedError, RuntimeError, zlib.error) as error:
        raise InputError(f"{wheel}: no wheel, or a damaged one: {error}") from error


def _machine_of(library: bytes) -> str:
    """The machine that a shared library is for."""
    if len(library) < _ELF_HEADER.size:
        return "no machine"
    magic, number = _ELF_HEADER.unpack_from(library)
    return _MACHINES.get(number, f"machine {number} of ELF") if magic == b"\x7fELF" else "no machine"
