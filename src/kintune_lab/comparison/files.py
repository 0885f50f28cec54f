"""The files of a comparison: found in folders and by patterns, and read as models with their shapes and constants."""

from __future__ import annotations

import glob
import shlex
from collections.abc import Sequence
from pathlib import Path

import msgspec
import platformdirs

from kintune.core.model import ModelRef
from kintune.errors import InputError, ModelError
from kintune.models import zoo
from kintune.models.combinations import combine_shapes, parse_shapes
from kintune.models.constants import parse_constants
from kintune.models.ref import EXPORTED, ZOO, parse_ref

__all__ = [
    "ModelFiles",
    "check_constants",
    "check_shapes",
    "constant_files",
    "content_of",
    "find_models",
    "model_of",
    "name_models",
    "own_files",
]

_SUFFIXES = (".onnx", ".pt2")
_ZOO = "zoo:"


class ModelFiles(msgspec.Struct, frozen=True):
    """The files of a model that other runtimes read: an ONNX file or a PyTorch exported program."""

    onnx: str | None = None
    exported: str | None = None


def find_models(text: str) -> list[str]:
    """The models that `text` stands for: the files of a folder and its folders, those of a pattern, or itself.

    Raises:
        InputError: there is no file, or no `.onnx` and no `.pt2` file among those found.
    """
    if text.startswith(_ZOO):
        parse_ref(text)
        return [text]
    path = Path(text)
    if path.is_dir():
        found = [str(file) for suffix in _SUFFIXES for file in path.rglob(f"*{suffix}") if file.is_file()]
        if not found:
            raise InputError(f"there is no {' or '.join(_SUFFIXES)} file in this folder")
    elif glob.has_magic(text) and not path.exists():
        found = [file for file in glob.glob(text, recursive=True) if Path(file).suffix in _SUFFIXES]
        if not found:
            raise InputError(
                f"no {' or '.join(_SUFFIXES)} file has such a name; paths are relative to the working directory"
            )
    else:
        found = [text]
        if not path.is_file():
            raise InputError("there is no such file; paths are relative to the working directory")
    return sorted(found)


def own_files(text: str) -> list[str]:
    """Returns the files whose contents identify a model; none for a network of the zoo."""
    return [] if text.startswith(_ZOO) else [text]


def check_shapes(text: str) -> None:
    """Check shapes as a spec has them: one for each input, with spaces between them.

    Raises:
        InputError: they do not read so, or an input has several.
    """
    if len(combine_shapes(parse_shapes(_words(text)))) > 1:
        raise InputError("one shape an input; write a list of texts to have the file compared with each")


def check_constants(text: str) -> None:
    """Check constants as a spec has them: one for each input, with spaces between them.

    Raises:
        InputError: they do not read so.
    """
    parse_constants(_words(text))


def constant_files(text: str) -> list[str]:
    """The files among constants as a spec has them.

    Raises:
        InputError: a quote is not closed.
    """
    values = (word.partition("=")[2].strip() for word in _words(text))
    return [value for value in values if value.endswith(".npy")]


def model_of(text: str, shapes: str, constants: str) -> ModelRef:
    """The model with its shapes and constants.

    Raises:
        InputError: it is no model, or one of them does not read so.
    """
    return parse_ref(text, _words(shapes), constants=parse_constants(_words(constants)))


def content_of(model: ModelRef) -> ModelFiles:
    """The files that other runtimes read; a network of the zoo is written first, once, where its importer reads it.

    Raises:
        ModelError: a network of the zoo cannot be written.
    """
    if model.kind == EXPORTED:
        return ModelFiles(exported=model.source)
    if model.kind != ZOO:
        return ModelFiles(onnx=model.source)
    directory = Path(platformdirs.user_cache_dir("kintune")) / "zoo"
    try:
        return ModelFiles(onnx=str(zoo.write(model.source, directory, **model.options)))
    except OSError as error:
        raise ModelError(f"zoo:{model.source}: cannot be written to {directory}: {error.strerror}") from error


def name_models(models: Sequence[str]) -> dict[str, str]:
    """A short name for each model: its file's without the ending, or as much of its path as tells it from others."""
    names: dict[str, str] = {}
    for model in dict.fromkeys(models):
        if model.startswith(_ZOO):
            names[model] = model
            continue
        path = Path(model)
        short = path.stem
        for parent in path.parents:
            if [_end(other, short.count("/") + 1) for other in dict.fromkeys(models)].count(short) < 2:
                break
            short = f"{parent.name}/{short}" if parent.name else short
        names[model] = short
    return {model: name if list(names.values()).count(name) == 1 else model for model, name in names.items()}


def _end(model: str, parts: int) -> str:
    """The last parts of a path, without the file's ending."""
    return "/".join(Path(model).with_suffix("").parts[-parts:])


def _words(text: str) -> list[str]:
    """The words of a text; quotes hold a name with spaces together.

    Raises:
        InputError: a quote is not closed.
    """
    try:
        return shlex.split(text)
    except ValueError as error:
        raise InputError(f"{text}: {error}; close it") from error
