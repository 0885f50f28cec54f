"""Sets of inputs with extreme values, chosen by what each input stands for: what real data has, and draws do not.

Use it where two runtimes are compared: `for each in extreme_inputs(tensors): run(each.arrays)`.  `tensors` are the
inputs of a model with what its import found out about them (`Tensor.values`), or plain `Tensor(name, shape, dtype)`.
A comparison must take infinities and NaN as equal where both runtimes have the same one, and should scale its absolute
tolerance by the reference's values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from kintune.core.dtypes import numpy_dtype
from kintune.core.model import Tensor
from kintune.runtime.inputs import Array, draw_inputs

__all__ = ["LARGE", "MOST_ORDINARY", "ExtremeInputs", "extreme_inputs"]

LARGE = 1e4
"""Large floating-point numbers are so many times as large as drawn ones."""

MOST_ORDINARY = 1e15
"""Values beyond it make an algorithm with another order of additions, such as Winograd's, lose those around them."""

_LARGEST = {"float16": 65504.0, "bfloat16": 3.3895313892515355e38, "float32": float(np.finfo(np.float32).max)}
_LARGEST_DOUBLE = float(np.finfo(np.float64).max)
_DENORMAL = {"float16": 2.0**-20, "float64": 1e-310}  # others have `_SINGLE_DENORMAL`
_SINGLE_DENORMAL = 1e-40
_BOX = 4  # numbers of a box
_BOX_NAMES = ("box", "roi")
_KEPT = frozenset({"choices", "lengths", "sizes"})

_Values: TypeAlias = Callable[[Tensor, Array], Array]
"""Makes the values of an input, given those that were drawn for it."""


class ExtremeInputs(NamedTuple):
    """A set of inputs: `name` completes "wrong on ..."; it `is_ordinary` if no value is beyond `MOST_ORDINARY`."""

    name: str
    arrays: dict[str, Array]

    @property
    def is_ordinary(self) -> bool:
        """Whether all numbers are finite, and none is so large that it swallows others."""
        with np.errstate(invalid="ignore"):
            numbers = (np.abs(array.astype(np.float64)) for array in self.arrays.values() if array.dtype != object)
            return all(bool((values <= MOST_ORDINARY).all()) for values in numbers)

    @property
    def is_borderline(self) -> bool:
        """Whether the order of operations may decide what overflows, or how denormal numbers are treated what is zero.

        The former is so where the square of a number overflows its type.
        """
        for array in self.arrays.values():
            if array.dtype.name in _LARGEST or array.dtype == np.float64:
                numbers = np.abs(array.astype(np.float64))
                numbers = numbers[np.isfinite(numbers) & (numbers > 0)]
                largest, denormal = _LARGEST.get(array.dtype.name, _LARGEST_DOUBLE), _denormal(array.dtype.name)
                if ((numbers > math.sqrt(largest)) | (numbers <= denormal)).any():
                    return True
        return False

    @property
    def tells_everything(self) -> bool:
        """Whether outputs on these inputs are as comparable as on ordinary ones."""
        return self.is_ordinary and not self.is_borderline


class _Row(NamedTuple):
    """What the inputs of a set are, by the role that each plays."""

    name: str
    floats: _Values
    masks: _Values
    ids: _Values
    integers: _Values
    boxes: _Values


def extreme_inputs(
    tensors: Sequence[Tensor],
    seed: int = 0,
    *,
    given: Mapping[str, Array] | None = None,
    keep_integers: bool = False,
) -> list[ExtremeInputs]:
    """The sets of extreme inputs of a model: at most eight, and none that equals the drawn or given inputs.

    The same for the same seed.  Where the user has `given` inputs, these take the place of drawn ones.  What must stay
    keeps those values: numbers with which the model compares an input, lengths, sizes, strings, and with
    `keep_integers` all integers but masks, bytes and indices, since they may decide extents.  Indices stay within their
    table.
    """
    drawn = draw_inputs(tensors, seed) if given is None else dict(given)
    found: list[ExtremeInputs] = []
    for row in _ROWS:
        arrays = {}
        for tensor in tensors:
            with np.errstate(over="ignore"):
                values = np.asarray(_maker(row, tensor, keep_integers)(tensor, drawn[tensor.name]))
                arrays[tensor.name] = np.broadcast_to(values, tensor.shape).astype(numpy_dtype(tensor.dtype))
        others = (drawn, *(each.arrays for each in found))
        if not any(_is_same(arrays, other) for other in others):
            found.append(ExtremeInputs(row.name, arrays))
    return found


def _maker(row: _Row, tensor: Tensor, keep_integers: bool) -> _Values:
    """How a set makes this input."""
    if tensor.values in _KEPT or tensor.dtype == "string" or 0 in tensor.shape:
        return _as_drawn
    if tensor.values == "mask" or tensor.dtype == "bool":
        return row.masks
    if tensor.values == "ids" or tensor.bounds is not None:
        return row.ids
    if tensor.dtype.startswith(("float", "bfloat")):
        is_box = tensor.shape[-1:] == (_BOX,) and any(part in tensor.name.lower() for part in _BOX_NAMES)
        return row.boxes if is_box else row.floats
    return _as_drawn if keep_integers and tensor.values != "bytes" else row.integers


def _is_same(one: Mapping[str, Array], other: Mapping[str, Array]) -> bool:
    return all(array.tobytes() == other[name].tobytes() for name, array in one.items())


def _as_drawn(_: Tensor, drawn: Array) -> Array:
    return drawn


def _all(value: float) -> _Values:
    return lambda tensor, drawn: np.full(tensor.shape, value)


def _one(value: Callable[[Tensor], float], others: _Values) -> _Values:
    """One element has this value, and the others are as `others` makes them."""

    def values(tensor: Tensor, drawn: Array) -> Array:
        made = np.array(others(tensor, drawn)).astype(drawn.dtype)
        if made.size:
            made.reshape(-1)[made.size // 3] = value(tensor)
        return made

    return values


def _in_turns(first: Callable[[Tensor], int], second: Callable[[Tensor], int]) -> _Values:
    """One value and the other in turns, in the order of the elements."""

    def values(tensor: Tensor, drawn: Array) -> Array:
        each = np.array([first(tensor), second(tensor)], drawn.dtype)
        return each[np.arange(drawn.size) % 2].reshape(drawn.shape)

    return values


def _always(value: Callable[[Tensor], int]) -> _Values:
    return lambda tensor, drawn: np.full(tensor.shape, value(tensor), drawn.dtype)


_EXACT_INTEGERS = {"float16": 1 << 11, "bfloat16": 1 << 8}
"""The greatest integer up to which a type holds all of them; 2 to the 24th in float32, more in float64."""


def _first(tensor: Tensor) -> int:
    """The least valid index."""
    return tensor.bounds[0] if tensor.bounds is not None else 0


def _last(tensor: Tensor) -> int:
    """The greatest valid index; a float that is an index holds integers exactly up to a power of two."""
    is_float = tensor.dtype.startswith(("float", "bfloat"))
    greatest = _EXACT_INTEGERS.get(tensor.dtype, 1 << 24) if is_float else _most(tensor)
    if tensor.bounds is not None:
        greatest = tensor.bounds[1]
    return max(_first(tensor), min(greatest, tensor.below - 1)) if tensor.values == "ids" else greatest


def _zero(tensor: Tensor) -> int:
    """The valid index nearest to 0."""
    return min(max(0, _first(tensor)), _last(tensor))


def _least(tensor: Tensor) -> int:
    return int(np.iinfo(tensor.dtype).min)


def _most(tensor: Tensor) -> int:
    return int(np.iinfo(tensor.dtype).max)


def _brightest(tensor: Tensor) -> int:
    """The greatest byte; 1 of wider integers."""
    return _most(tensor) if tensor.values == "bytes" else 1


def _large(tensor: Tensor, drawn: Array) -> Array:
    most = _LARGEST.get(tensor.dtype, np.inf)
    return np.clip(drawn.astype(np.float64) * LARGE, -most, most)


def _denormals(tensor: Tensor, drawn: Array) -> Array:
    """Denormal numbers of both signs."""
    return np.where(drawn.astype(np.float64) < 0, -1.0, 1.0) * _denormal(tensor.dtype)


def _denormal(dtype: str) -> float:
    return _DENORMAL.get(dtype, _SINGLE_DENORMAL)


def _repeated(_: Tensor, drawn: Array) -> Array:
    return np.full(drawn.shape, drawn.reshape(-1)[drawn.size // 2], drawn.dtype)


def _full_box(tensor: Tensor, _: Array) -> Array:
    return np.broadcast_to(np.array([0.0, 0.0, 1.0, 1.0]), tensor.shape)


def _largest(tensor: Tensor) -> float:
    return _LARGEST.get(tensor.dtype, _LARGEST_DOUBLE)


_ROWS = (
    _Row("inputs that are all zeros", _all(0.0), _all(0), _always(_zero), _all(0), _all(0.0)),
    _Row("inputs that are all equal", _all(1.0), _all(1), _always(_last), _always(_brightest), _full_box),
    _Row(
        "large inputs",
        _large, _one(lambda _: 1, _all(0)), _in_turns(_first, _last), _in_turns(_least, _most), _large,
    ),
    _Row(
        "inputs with a single 1",
        _one(lambda _: 1.0, _all(0.0)), _as_drawn, _repeated, _one(lambda _: 1, _all(0)), _as_drawn,
    ),
    _Row("denormal inputs", _denormals, *(_as_drawn,) * 3, _denormals),
    _Row("inputs with one NaN", _one(lambda _: np.nan, _as_drawn), *(_as_drawn,) * 4),
    _Row("inputs with one infinity", _one(lambda _: np.inf, _as_drawn), *(_as_drawn,) * 4),
    _Row("inputs with one largest number", _one(_largest, _as_drawn), *(_as_drawn,) * 4),
)  # fmt: skip
"""The sets, ordinary values first."""
