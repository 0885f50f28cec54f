"""Parses the name of a model that a user has typed into a `ModelRef`, without reading the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from kintune.core.model import Constant, ModelRef
from kintune.errors import InputError, ModelError
from kintune.models import zoo
from kintune.models.combinations import combine_shapes, parse_shapes

__all__ = ["EXPORTED", "ONNX", "ZOO", "parse_ref"]

ONNX = "onnx"
EXPORTED = "exported"
ZOO = "zoo"

_ZOO_PREFIX = "zoo:"
_PICKLES = frozenset({".pt", ".pth", ".pkl", ".pickle", ".bin", ".ckpt", ".joblib"})
_FOREIGN = {
    ".safetensors": "holds weights without a graph",
    ".tflite": "is a TensorFlow Lite model",
    ".pb": "is a TensorFlow graph",
    ".h5": "is a Keras model",
    ".keras": "is a Keras model",
    ".mlmodel": "is a Core ML model",
    ".gguf": "holds weights without a graph",
}
_EXPORTED_SUFFIX = ".pt2"
_ZIP_MAGIC = b"PK\x03\x04"


def parse_ref(
    text: str,
    shapes: Iterable[str] = (),
    options: Mapping[str, int] | None = None,
    constants: Mapping[str, Constant] | None = None,
) -> ModelRef:
    """Parse the name of a model.

    `text` is the path of an .onnx file, the path of a .pt2 file (a PyTorch exported program), or `zoo:NAME`, with
    options as in `zoo:bert_base?batch=8&sequence=64`; `options` adds to those, and overrides them.  `shapes` are texts
    for `parse_shapes`; `constants` has the values of inputs that become constants.

    Raises:
        ModelError: for a missing, empty or unsuitable file, or an unknown zoo name or option.
        ShapeError: for a text that is no shape, two different shapes of an input, or alternatives that cannot be
            combined.
    """
    bound = combine_shapes(parse_shapes(shapes))
    fixed = dict(constants or {})
    if text.startswith(_ZOO_PREFIX):
        name, given = _parse_zoo(text[len(_ZOO_PREFIX) :])
        merged = {**given, **(options or {})}
        zoo.check(name, merged)
        ref = ModelRef(kind=ZOO, source=name, name=name, options=merged, constants=fixed)
        return ref.with_combinations(bound)
    if options:
        raise ModelError(
            f"{text}: options ({', '.join(options)}) are for zoo models; bind a file's inputs with --shape"
        )
    path = Path(text)
    kind = _kind_of(path)
    ref = ModelRef(kind=kind, source=str(path.absolute()), name=path.stem, constants=fixed, own=True)
    return ref.with_combinations(bound)


def _parse_zoo(text: str) -> tuple[str, dict[str, int]]:
    """Split `NAME?option=value&...`."""
    name, _, query = text.partition("?")
    options: dict[str, int] = {}
    for part in query.split("&") if query else ():
        key, _, value = part.partition("=")
        if not (key and value.isascii() and value.isdigit() and len(value) < 10):
            raise ModelError(f"zoo:{text}: write options as ?batch=1&sequence=128, whole numbers; {part!r} is none")
        options[key] = int(value)
    return name, options


def _kind_of(path: Path) -> str:
    """Whether a path names an ONNX file or an exported program; refuse what is neither."""
    suffix = path.suffix.lower()
    try:
        if path.is_dir():
            raise ModelError(f"{path}: is a directory; name the model file in it")
        if not path.exists():
            raise ModelError(f"{path}: no such file{_spelling_hint(str(path))}")
        if not path.is_file():
            raise ModelError(f"{path}: is not a regular file")
        if suffix in _PICKLES:
            raise ModelError(
                f"{path}: a pickled PyTorch file is code and is never loaded; save the model with "
                "torch.export.save (.pt2), or export it to ONNX"
            )
        if suffix in _FOREIGN:
            raise ModelError(f"{path}: {_FOREIGN[suffix]}; convert the model to ONNX")
        with path.open("rb") as file:
            magic = file.read(len(_ZIP_MAGIC))
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise ModelError(f"{path}: cannot be read: {reason}") from error
    if not magic:
        raise ModelError(f"{path}: the file is empty")
    if suffix == _EXPORTED_SUFFIX:
        if magic != _ZIP_MAGIC:
            raise ModelError(f"{path}: is not a PyTorch exported program; save one with torch.export.save")
        return EXPORTED
    if magic == _ZIP_MAGIC:
        raise ModelError(f"{path}: is an archive, not an ONNX file; an exported program's name ends in .pt2")
    return ONNX


def _spelling_hint(text: str) -> str:
    """A hint to write `zoo:` before the name of one of the zoo's networks; empty for any other text."""
    try:
        zoo.check(text, {})
    except InputError:
        return ""
    return f"; for the zoo's network write zoo:{text}"
