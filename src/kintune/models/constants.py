"""Values of inputs that are constant: read from text, numbers or .npy files, and converted as the model declares."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import platformdirs
from numpy.typing import NDArray

from kintune.core.candidate import digest_of
from kintune.core.dtypes import numpy_dtype
from kintune.core.model import Constant
from kintune.errors import InputError, ModelError
from kintune.files import open_regular
from kintune.wire.staging import is_apart

if TYPE_CHECKING:
    from typing import Any

__all__ = [
    "constant_of",
    "constant_values",
    "describe_constants",
    "fit_constant",
    "located",
    "parse_constant",
    "parse_constants",
    "store_constant",
]

_MOST_INLINE = 16 * 1024
"""Constants of up to so many bytes are stored in the job itself; larger ones are stored in a file."""

_DEEPEST = 16
_TOKEN = re.compile(r"\s*([\[\],]|[^\s\[\],]+)")
_WHOLE = re.compile(r"[+-]?[0-9]{1,20}")
_WORDS: dict[str, bool | float] = {"true": True, "false": False, "inf": np.inf, "-inf": -np.inf, "nan": np.nan}


def parse_constants(texts: Iterable[str]) -> dict[str, Constant]:
    """Parse several texts as `parse_constant` does; return the constants by input.

    Raises:
        InputError: when a text has another form, or two give an input different values.
    """
    found: dict[str, Constant] = {}
    for text in texts:
        name, constant = parse_constant(text)
        if found.setdefault(name, constant) != constant:
            raise InputError(f"--constant {_short(text)}: {name} was already given another value")
    return found


def parse_constant(text: str, *, files: bool = True) -> tuple[str, Constant]:
    """Parse `NAME=VALUE` or `NAME=FILE.npy` into the input's name and its value.

    A value is a number, true or false; several of them with commas between them; or lists in brackets, which may be
    nested: `sizes=1,3,8,8`, `sizes=[1, 3, 8, 8]`, `flag=true`.  Without `files`, the name of a file is refused.

    Raises:
        InputError: when the text has another form, or the file is missing or no .npy file of numbers.
    """
    name, equals, value = text.partition("=")
    if not (equals and name and value.strip()):
        raise InputError(
            f"--constant {_short(text)}: write NAME=VALUE or NAME=FILE.npy, for example sizes=1,3,8,8 or flag=true"
        )
    if files and value.strip().endswith(".npy"):
        return name, _from_file(name, value.strip())
    return name, constant_of(name, _parse_value(text, value))


def constant_of(name: str, value: Any) -> Constant:
    """Make a constant from a number, a bool, (nested) lists of them, an array, the path of an .npy file, or a text.

    A text is a value as in `parse_constant`.

    Raises:
        InputError: when it is none of these, or its lists differ in length.
    """
    if isinstance(value, str | os.PathLike):
        return parse_constant(f"{name}={os.fspath(value)}")[1]
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, OverflowError):
        raise InputError(f"the constant {name} is not one number, nor lists of equal lengths of numbers") from None
    return store_constant(name, array)


def located(constant: Constant, locate: Callable[[str], str]) -> Constant:
    """The same constant; if its values are in a file, its path is `locate` of the old path."""
    return msgspec.structs.replace(constant, path=locate(constant.path)) if constant.path else constant


def constant_values(constant: Constant) -> NDArray[Any]:
    """The elements of a constant, in the shape and type that they were given.

    Raises:
        InputError: when its file is missing or has changed.
    """
    if not constant.path:
        values: NDArray[Any] = np.frombuffer(constant.data, numpy_dtype(constant.dtype)).reshape(constant.shape)
        return np.array(values)
    array = _load(constant.path, constant.path)
    if array.dtype.kind == "V":  # .npy files do not know bfloat16
        array = array.view(numpy_dtype(constant.dtype))
    if _digest(array) != constant.digest:
        raise InputError(f"{constant.path}: has changed since it was named as a constant; begin again")
    return array


def fit_constant(
    label: str, name: str, constant: Constant, dtype: np.dtype[Any], declared: Sequence[int | str] | None
) -> NDArray[Any]:
    """Returns the elements converted to `dtype`, in a shape that fits `declared`, whose open sizes are texts.

    Numbers may be rounded to a floating-point type; else they keep their value, so 300 does not fit uint8.
    Floating-point numbers are never converted to integers, nor true and false to numbers.  A single number fits an
    input of one element of any rank.  `label` names the model in messages.

    Raises:
        ModelError: when the elements do not fit.
    """
    given = constant_values(constant)
    values = given
    if declared is not None:
        fixed = tuple(size if isinstance(size, int) else None for size in declared)
        if values.size == 1 and values.ndim <= 1 and all(size in (1, None) for size in fixed):
            values = values.reshape((1,) * len(fixed))
        fits = len(fixed) == values.ndim and all(
            size in (None, extent) for size, extent in zip(fixed, values.shape, strict=True)
        )
        if not fits:
            wanted = "x".join(str(size) or "?" for size in declared) or "a scalar"
            shape = "x".join(map(str, given.shape)) or "a scalar"
            raise ModelError(f"{label}: the constant {name} has the shape {shape}, but the model's input has {wanted}")
    return _converted(label, name, values, dtype)


def _converted(label: str, name: str, values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Convert the type of the elements; see `fit_constant`."""
    floating = dtype.kind == "f" or dtype.name == "bfloat16"
    fits = values.size == 0
    if values.dtype.kind == "b":
        fits = fits or dtype.kind == "b"
    elif dtype.kind == "b":
        fits = fits or bool(np.isin(values, (0, 1)).all())
    elif not floating:
        limits = np.iinfo(dtype)
        whole = values.dtype.kind in "iu"
        fits = fits or (whole and int(values.min()) >= limits.min and int(values.max()) <= limits.max)
    else:
        fits = True
    if not fits:
        raise ModelError(
            f"{label}: the constant {name} ({_short(str(values.reshape(-1)[:8].tolist()))}) does not fit the model's "
            f"input, whose elements are {dtype.name}"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        converted = values.astype(dtype)
    if floating and np.isinf(converted.astype(np.float64)).sum() > np.isinf(values.astype(np.float64)).sum():
        raise ModelError(f"{label}: the constant {name} is too large for the model's input, which is {dtype.name}")
    return converted


def store_constant(name: str, array: NDArray[Any], *, typed: bool = False) -> Constant:
    """Make a constant of these elements.

    They are stored in the constant itself if they are few, or if the job does not see this machine's files, else in a
    file of the user's cache.  With `typed`, they keep their type.  Otherwise, integers become int64 (or uint64) and up
    to 16 KiB of floating-point numbers float64, so that equal values have equal digests however they were given.

    Raises:
        InputError: when they are no numbers, or cannot be stored.
    """
    array = np.ascontiguousarray(array if typed else _plain(name, array)).reshape(array.shape)
    if array.nbytes <= _MOST_INLINE or is_apart():
        return Constant(array.dtype.name, array.shape, _digest(array), data=array.tobytes())
    digest = _digest(array)
    folder = Path(platformdirs.user_cache_dir("kintune")) / "constants"
    path = folder / f"{digest}.npy"
    if not path.exists():
        temporary = folder / f".{digest}-{os.getpid()}.npy"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            np.save(temporary, array, allow_pickle=False)
            temporary.replace(path)
        except OSError as error:
            raise InputError(f"{folder}: the constant {name} cannot be kept there: {error.strerror}") from error
    return Constant(array.dtype.name, array.shape, digest, path=str(path))


def _plain(name: str, array: NDArray[Any]) -> NDArray[Any]:
    """The same numbers in the type in which they are stored; see `store_constant`."""
    if array.size == 0 and array.dtype == np.float64:
        return array.astype(np.int64)  # an empty list has no type; integers fit all
    if array.dtype.kind == "b":
        return array
    if array.dtype.kind in "iu":
        return array.astype(np.uint64 if array.size and int(array.max()) >= 1 << 63 else np.int64)
    if array.dtype.kind == "f":
        return array if array.nbytes > _MOST_INLINE else array.astype(np.float64)
    if array.dtype.name == "bfloat16":
        return array.astype(np.float32 if array.nbytes > _MOST_INLINE else np.float64)
    raise InputError(f"the constant {name} is not made of numbers, or of true and false, but of {array.dtype}")


def _from_file(name: str, text: str) -> Constant:
    path = os.path.abspath(text)
    array = _load(path, text)
    if array.nbytes <= _MOST_INLINE:
        return store_constant(name, array)
    if array.dtype.kind not in "biuf":
        raise InputError(f"{text}: is not made of numbers, but of {array.dtype}")
    return Constant(array.dtype.name, array.shape, _digest(array), path=path)


def _load(path: str, label: str) -> NDArray[Any]:
    try:
        with open_regular(path) as file:
            array = np.load(file, allow_pickle=False)
    except FileNotFoundError:
        raise InputError(f"{label}: no such file") from None
    except MemoryError as error:
        raise InputError(f"{label}: there is not enough memory for its array") from error
    except Exception as error:  # numpy lets through what Python's parser and the unpackers raise
        why = "" if "pickle" in str(error) else f": {' '.join(str(error).split())}"  # numpy advises to load it unsafely
        raise InputError(f"{label}: not an .npy file of numbers{why}") from error
    if not isinstance(array, np.ndarray):
        raise InputError(f"{label}: not an .npy file of one array, but of several")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _digest(array: NDArray[Any]) -> str:
    return digest_of(array.dtype.name.encode(), str(array.shape).encode(), array.tobytes())


def _parse_value(text: str, value: str) -> Any:
    """Parse a number, or numbers in nested lists; `text` is for messages."""
    tokens = [match.group(1) for match in _TOKEN.finditer(value)]
    bracketed = tokens[0] == "["
    if not bracketed and len(tokens) > 1:
        tokens = ["[", *tokens, "]"]
    items, rest = _parse_item(text, tokens, 0)
    if rest != len(tokens):
        raise InputError(f"--constant {_short(text)}: nothing may follow its value")
    kinds = {isinstance(leaf, bool) for leaf in _leaves(items)}
    if len(kinds) > 1:
        raise InputError(f"--constant {_short(text)}: mixes numbers with true and false")
    return items


def _parse_item(text: str, tokens: Sequence[str], at: int, depth: int = 0) -> tuple[Any, int]:
    """Parse the item that begins at token `at`; return it and the position of the token after it."""
    unreadable = InputError(f"--constant {_short(text)}: its value is no number, true, false, nor a list of them")
    if at >= len(tokens) or depth > _DEEPEST:
        raise unreadable
    if tokens[at] != "[":
        return _number(tokens[at], unreadable), at + 1
    items: list[Any] = []
    at += 1
    if at < len(tokens) and tokens[at] == "]":
        return items, at + 1
    while True:
        item, at = _parse_item(text, tokens, at, depth + 1)
        items.append(item)
        if at >= len(tokens) or tokens[at] not in (",", "]"):
            raise unreadable
        if tokens[at] == "]":
            return items, at + 1
        at += 1


def _number(token: str, unreadable: InputError) -> bool | int | float:
    if (word := _WORDS.get(token.lower())) is not None:
        return word
    if _WHOLE.fullmatch(token):
        return int(token)
    try:
        return float(token) if "_" not in token else float("?")
    except ValueError:
        raise unreadable from None


def _leaves(items: Any) -> Iterable[Any]:
    if not isinstance(items, list):
        yield items
        return
    for item in items:
        yield from _leaves(item)


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}..."


def describe_constants(constants: Mapping[str, Constant]) -> tuple[tuple[str, str, tuple[int, ...], str], ...]:
    """A key that is equal for equal constants: (input, type, shape, digest) of each, sorted by input."""
    return tuple((name, one.dtype, one.shape, one.digest) for name, one in sorted(constants.items()))
