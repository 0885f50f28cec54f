"""A model's inputs as arrays: checks and orders them, draws them from a seed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from .dtypes import numpy_dtype
from .errors import InputError

__all__ = [
    "Array",
    "InputTensor",
    "Tensor",
    "arrange_inputs",
    "as_array",
    "choose_plan",
    "draw_inputs",
    "given_shapes",
    "takes",
]

Array: TypeAlias = npt.NDArray[Any]

_COUNTS = 8  # an upper bound of the values of counts
_LEAST_POSITIVE = 1 / 16
_SMALL = 1e-2  # the deviation of small numbers
_STRING = "string"
_WORDS = ("a", "the", "of", "and", "to", "in", "is", "it", "for", "on", "red", "blue", "yes", "no", "one", "two")


class InputTensor(Protocol):
    """What is known of an input; see `Tensor`."""

    @property
    def name(self) -> str:
        """The name."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents."""

    @property
    def dtype(self) -> str:
        """The name of the type of its elements."""

    @property
    def bounds(self) -> tuple[int, int] | None:
        """The least and the greatest index."""

    @property
    def values(self) -> str:
        """What it stands for, such as "ids"."""

    @property
    def below(self) -> int:
        """The exclusive upper bound of ids."""

    @property
    def choices(self) -> tuple[float | int, ...]:
        """The values of which all elements have one."""

    @property
    def ranges(self) -> tuple[tuple[int, int, int], ...]:
        """The least and greatest extents, and their steps; empty where all are fixed."""


class Tensor(NamedTuple):
    """An input or output: its name, its shape and the name of its type ("float32", or "string").

    An output that is no tensor has its kind there ("sequence", "map", "optional"), and no extents.

    `bounds` holds the least and the greatest value of an input that is an index.  `values` says what an input stands
    for: "ids" (less than `below`), "mask", "bytes", "counts", "lengths", "image", "positive", "choices" (all elements
    are one of `choices`), "sizes" (which the network does not read) or nothing.

    `ranges` has the least and the greatest extent of each axis, and the step from one to the next, where not all are
    fixed; `shape` has the greatest ones.  A step of 0 says that the extent follows from others.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    bounds: tuple[int, int] | None = None
    values: str = ""
    below: int = 0
    choices: tuple[float | int, ...] = ()
    ranges: tuple[tuple[int, int, int], ...] = ()


def takes(tensor: InputTensor, shape: tuple[int, ...]) -> bool:
    """Whether an input can have this shape, as far as its own extents tell."""
    if not tensor.ranges:
        return shape == tensor.shape
    return len(shape) == len(tensor.ranges) and all(
        least <= extent <= greatest and (extent - least) % (step or 1) == 0
        for extent, (least, greatest, step) in zip(shape, tensor.ranges, strict=True)
    )


def arrange_inputs(tensors: Sequence[InputTensor], given: Sequence[Any]) -> list[Array]:
    """The arrays of a model's inputs in its order.

    `given` is one mapping of names to arrays, or one array an input.

    Raises:
        InputError: an input is missing, unknown, of another dtype or shape than the model's, or holds an index outside
            of its `bounds`.
    """
    expected = [tensor.name for tensor in tensors]
    if len(given) == 1 and isinstance(given[0], Mapping):
        named = given[0]
        unknown = [str(name) for name in named if name not in expected]
        missing = [name for name in expected if name not in named]
        if unknown:
            raise InputError(f"no input is called {_listed(unknown)}; the inputs are {_listed(expected)}")
        if missing:
            raise InputError(f"input {_listed(missing)} is missing; the inputs are {_listed(expected)}")
        given = [named[name] for name in expected]
    elif len(given) != len(expected):
        raise InputError(f"{len(given)} inputs given, {len(expected)} needed: {_listed(expected)}")
    return [_checked(tensor, value) for tensor, value in zip(tensors, given, strict=True)]


def choose_plan(plans: Sequence[Sequence[InputTensor]], given: Sequence[Any]) -> int:
    """The number of the plan for inputs of these shapes; `plans` has the inputs of each.

    `given` is as for `arrange_inputs`.  Where inputs are missing or unknown it is 0: `arrange_inputs` says so.

    Raises:
        InputError: there are several plans, and none of them is for these shapes; or an input is no array.
    """
    if len(plans) < 2:
        return 0
    names = [tensor.name for tensor in plans[0]]
    shapes = given_shapes(names, given)
    if shapes is None:
        return 0
    for number, tensors in enumerate(plans):
        if all(takes(tensor, shape) for tensor, shape in zip(tensors, shapes, strict=True)):
            return number
    telling = [at for at, shape in enumerate(shapes) if any(plan[at].shape != shape for plan in plans)]
    tuned = "; ".join(_spelled(names, [_extents(tensor) for tensor in plan], telling) for plan in plans)
    raise InputError(f"the shapes {_spelled(names, shapes, telling)} were not tuned; tuned are: {tuned}")


def given_shapes(names: Sequence[str], given: Sequence[Any]) -> list[tuple[int, ...]] | None:
    """The shapes of what is given for these inputs, as for `arrange_inputs`; None where some are missing or unknown.

    Raises:
        InputError: an input is no array.
    """
    if len(given) == 1 and isinstance(given[0], Mapping):
        if set(given[0]) != set(names):
            return None
        given = [given[0][name] for name in names]
    elif len(given) != len(names):
        return None
    return [as_array(name, value).shape for name, value in zip(names, given, strict=True)]


def _extents(tensor: InputTensor) -> tuple[object, ...]:
    """The extents of an input, and of those that are open the ends of their range."""
    ranges = tensor.ranges or [(extent, extent, 0) for extent in tensor.shape]
    return tuple(least if least == greatest else f"{{{least}..{greatest}}}" for least, greatest, _ in ranges)


def _spelled(names: Sequence[str], shapes: Sequence[tuple[object, ...]], at: Sequence[int]) -> str:
    return ", ".join(f"{names[each]}={'x'.join(map(str, shapes[each])) or 'scalar'}" for each in at)


def draw_inputs(tensors: Iterable[InputTensor], seed: int = 0, choice: int = 0) -> dict[str, Array]:
    """Arrays of the given names, shapes and dtypes, the same for the same seed.

    Inputs that are one of several `choices` are the one with the number `choice`, counted round and round.

    They follow a tensor's `bounds` and `values`: indices lie in their tables, bytes over their range, counts in
    [0, 8), images in [0, 1), positive numbers in [1/16, 1); masks are ones with a tail of zeros in each row, lengths
    those of the whole.  Other floating-point values are normal (mean 0, deviation 1), other integers 0 or 1, which any
    table has.  Strings are short words.
    """
    tensors = tuple(tensors)
    generator = np.random.default_rng(seed)
    longest = min((tensor.shape[1] for tensor in tensors if len(tensor.shape) in (2, 3)), default=1)
    return {t.name: np.asarray(_drawn(t, generator, longest, choice)).astype(numpy_dtype(t.dtype)) for t in tensors}


def _drawn(tensor: InputTensor, generator: np.random.Generator, longest: int, choice: int) -> Any:
    """Returns the values of one input, in any type."""
    shape = tensor.shape
    if tensor.dtype == _STRING:
        return np.array(_WORDS, object)[generator.integers(0, len(_WORDS), shape)]
    if tensor.bounds is not None:
        least, greatest = tensor.bounds
        least = max(least, min(0, greatest))
        if tensor.values == "ids":
            greatest = max(least, min(greatest, tensor.below - 1))
        return generator.integers(least, greatest, shape, endpoint=True)
    match tensor.values:
        case "mask":
            return _mask(shape, generator)
        case "image":
            return generator.random(shape, np.float32)
        case "positive":
            return generator.uniform(_LEAST_POSITIVE, 1.0, shape)
        case "small":
            return _SMALL * generator.standard_normal(shape)
        case "choices":
            return np.full(shape, tensor.choices[choice % len(tensor.choices)])
        case "ids":
            return generator.integers(0, max(1, min(tensor.below, _largest(tensor.dtype) + 1)), shape)
        case "bytes":
            limits = np.iinfo(tensor.dtype)
            return generator.integers(limits.min, limits.max, shape, endpoint=True)
        case "counts":
            return generator.integers(0, _COUNTS, shape)
        case "lengths":
            return np.full(shape, min(longest, _largest(tensor.dtype)))
    if tensor.dtype == "float64":
        return generator.standard_normal(shape)
    if tensor.dtype.startswith(("float", "bfloat")):
        return generator.standard_normal(shape, np.float32)
    return generator.integers(0, 2, shape)


def _mask(shape: tuple[int, ...], generator: np.random.Generator) -> Array:
    """Returns ones, with a tail of zeros over at most a quarter of each row; the first row is all ones."""
    if not shape or 0 in shape:
        return np.ones(shape, np.float32)
    length = shape[-1]
    tails = generator.integers(0, length // 4, (*shape[:-1], 1), endpoint=True)
    if tails.size > 1:
        tails[(0,) * tails.ndim] = 0
    else:
        tails[...] = length // 4
    return np.asarray(np.arange(length) < length - tails).astype(np.float32)


def _largest(dtype: str) -> int:
    return int(np.iinfo(dtype).max) if dtype.startswith(("int", "uint")) else 1


def _checked(tensor: InputTensor, value: Any) -> Array:
    array = as_array(tensor.name, value)
    if tensor.dtype == _STRING:
        array = _strings(tensor, array)
    dtype = numpy_dtype(tensor.dtype)
    if array.dtype != dtype:
        raise InputError(f"input {tensor.name!r} is {array.dtype}, {dtype} is needed; use .astype({dtype.name!r})")
    if not takes(tensor, array.shape):
        needed = "x".join(map(str, _extents(tensor))) if tensor.ranges else tensor.shape
        raise InputError(f"input {tensor.name!r} has shape {array.shape}, {needed} is needed")
    if tensor.bounds is not None and array.size:
        least, greatest = tensor.bounds
        for value in (int(array.min()), int(array.max())):
            if not least <= value <= greatest:
                position = [int(at) for at in np.argwhere(array == value)[0]]
                size = f" ({greatest + 1} entries)" if least in (0, -greatest - 1) else ""
                raise InputError(
                    f"input {tensor.name!r} holds {value} at {position}, an index that must lie between {least} and "
                    f"{greatest}{size}"
                )
    return array


def as_array(name: str, value: Any) -> Array:
    """What is given for an input as an array.

    Raises:
        InputError: it is none.
    """
    try:
        return np.asarray(value)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"input {name!r} is no array; give a numpy array, or lists of equal lengths") from None


def _strings(tensor: InputTensor, array: Array) -> Array:
    """Returns an array of strings of any type of numpy as one of objects, which onnxruntime takes."""
    plain = array.astype(object) if array.dtype.kind in "UT" else array
    if plain.dtype != object or not all(isinstance(value, str) for value in plain.flat):
        raise InputError(f"input {tensor.name!r} is {array.dtype}, strings are needed; use numpy.array([...], object)")
    return plain


def _listed(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)
