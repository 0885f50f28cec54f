"""Exports a `.kt` file as a Python wheel, with the runtime inside.

It needs numpy alone, and onnxruntime where the model runs partly in that.
"""

from __future__ import annotations

import base64
import hashlib
import keyword
import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from kintune.core.hybrid import Hybrid
from kintune.errors import InputError
from kintune.runtime.exports.folder import write_folder
from kintune.runtime.exports.runtime_files import runtime_files
from kintune.runtime.exports.source import open_source
from kintune.runtime.package import Manifest

__all__ = ["export_wheel", "package_name"]

_NUMPY = "numpy>=1.26,<3"
_PYTHON = ">=3.10,<3.15"
_CHUNK = 16 << 20
_LIBRARY, _ONNX_LIBRARY = "libkintune.so", "libkintune_onnx.so"
_TAKEN = frozenset({"numpy", "kintune", "kintune_runtime"})

_INIT = '''"""{name}, tuned by Kintune: `load().run(...)` runs it on this machine's CPU."""

from __future__ import annotations

from pathlib import Path

from {package}.runtime import Evaluation, InputError, KintuneError, RunError, Variant
from {package}.runtime import {start}Context, {start}Executable

__all__ = [
    "Evaluation",
    "InputError",
    "KintuneError",
    "RunError",
    "Variant",
    "load",
    "{start}Context",
    "{start}Executable",
]


def load() -> {start}Executable:
    """Open the model; `run` takes arrays by the names of its inputs.

    Raises:
        InputError: this CPU lacks instructions that the model was tuned for, in each of its variants.
    """
    return {start}Executable(Path(__file__).with_name("model.kt"))
'''


def export_wheel(model: Path, folder: Path, name: str = "", runtime: Path | None = None) -> Path:
    """Write `folder` with one wheel; returns its path.

    The package is called `name`, by default the model's name in lower case, with an underscore for what is no letter or
    digit, and after `model_` if that is no name by itself.  Its version is 0 and the model's digest.  The runtime
    inside is that in the wheel `runtime`, by default the one installed here; it must be for the model's machine.

    Raises:
        InputError: the model is missing, damaged, of another format or not for CPUs, the name is none that Python
            takes, the runtime is for another machine or its wheel cannot be read, or the folder is not empty or cannot
            be written.
        KintuneError: the runtime is not installed whole.
    """
    model, opened = open_source(model)
    manifest = opened.manifest
    package = name or package_name(manifest.model_name)
    if not re.fullmatch(r"[a-z_][a-z0-9_]*", package) or keyword.iskeyword(package):
        raise InputError(f"{package!r} is no name of a Python package; name one of letters, digits and underscores")
    if package in _TAKEN:
        raise InputError(f"{package!r} is the name of a package that the wheel needs or replaces; choose another")
    libraries = (_LIBRARY,) if manifest.hybrid is None else (_LIBRARY, _ONNX_LIBRARY)
    files = runtime_files(model, manifest.machine, libraries, runtime)
    version = f"0+{manifest.model_digest[:12] or 'unknown'}"
    file_name = f"{package}-{version}-py3-none-linux_{manifest.machine}.whl"

    def fill(made: Path) -> None:
        with zipfile.ZipFile(made / file_name, "w", zipfile.ZIP_STORED) as archive:
            _write(archive, package, version, model, files, manifest, libraries)

    return write_folder(folder, fill) / file_name


def _onnxruntime(hybrid: Hybrid) -> str:
    """The versions of onnxruntime that the wheel needs: from the oldest that it was tried with to the newest."""
    numbers = [tuple(map(int, re.findall(r"\d+", version)[:3])) for version in hybrid.onnxruntime]
    tried = sorted(number for number in numbers if len(number) > 1)
    if not tried:
        return "onnxruntime>=1.12,<2"
    major, minor = tried[-1][:2]
    return f"onnxruntime>={'.'.join(map(str, tried[0]))},<{major}.{minor + 1}"


def package_name(model: str) -> str:
    """Returns what the package of a model of this name is called, unless another name is chosen."""
    plain = re.sub(r"[^a-z0-9]+", "_", model.lower()).strip("_")
    return (
        plain
        if plain[:1].isalpha() and plain not in _TAKEN and not keyword.iskeyword(plain)
        else f"model_{plain}".rstrip("_")
    )


def _write(
    archive: zipfile.ZipFile,
    package: str,
    version: str,
    model: Path,
    files: Mapping[str, bytes],
    manifest: Manifest,
    libraries: Sequence[str],
) -> None:
    record: list[str] = []

    def add(name: str, content: bytes) -> None:
        archive.writestr(zipfile.ZipInfo(name), content)
        record.append(_recorded(name, hashlib.sha256(content), len(content)))

    info = f"{package}-{version}.dist-info"
    title, start = re.sub(r"[^\w .-]", "", manifest.model_name), "Hybrid" if manifest.hybrid else ""
    add(f"{package}/__init__.py", _INIT.format(name=title, package=package, start=start).encode())
    for path in sorted(files):
        if path in libraries or ("/" not in path and path.endswith(".py")):
            add(f"{package}/runtime/{path}", files[path])
    record.append(_add_large(archive, f"{package}/model.kt", model))
    metadata = [
        "Metadata-Version: 2.1", f"Name: {package}", f"Version: {version}",
        f"Summary: {package}, tuned by Kintune {manifest.kintune}",
        f"Requires-Python: {_PYTHON}", f"Requires-Dist: {_NUMPY}",
        *([] if manifest.hybrid is None else [f"Requires-Dist: {_onnxruntime(manifest.hybrid)}"]), "",
    ]  # fmt: skip
    add(f"{info}/METADATA", "\n".join(metadata).encode())
    wheel = [
        "Wheel-Version: 1.0", "Generator: kintune", "Root-Is-Purelib: false",
        f"Tag: py3-none-linux_{manifest.machine}", "",
    ]  # fmt: skip
    add(f"{info}/WHEEL", "\n".join(wheel).encode())
    archive.writestr(zipfile.ZipInfo(f"{info}/RECORD"), "\n".join([*record, f"{info}/RECORD,,", ""]))


def _add_large(archive: zipfile.ZipFile, name: str, source: Path) -> str:
    """Copies a file piece by piece; returns its line of the record."""
    digest, size = hashlib.sha256(), 0
    with open(source, "rb") as file, archive.open(zipfile.ZipInfo(name), "w", force_zip64=True) as member:
        while piece := file.read(_CHUNK):
            member.write(piece)
            digest.update(piece)
            size += len(piece)
    return _recorded(name, digest, size)


def _recorded(name: str, digest: hashlib._Hash, size: int) -> str:
    encoded = base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()
    return f"{name},sha256={encoded},{size}"
