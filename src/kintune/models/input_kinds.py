"""Finds what the values of each input of an imported module mean, from the operators that use it.

`kintune.runtime.inputs.draw_inputs` draws test inputs by it: an index must be in range, and a mask must not be a tensor
of arbitrary numbers.  An input all of whose elements are indices also gets `bounds`, which are checked before each run,
since kernels do not check indices.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax

from kintune.core.model import Tensor
from kintune.models.index_marks import read_mark
from kintune.models.input_values import MOST_CHOICES, InputDemand, InputStep, find_demands

__all__ = ["bounded_lookups", "with_demand", "with_kinds"]

_MOVES = frozenset(
    f"relax.{name}"
    for name in (
        "astype",
        "reshape",
        "expand_dims",
        "squeeze",
        "permute_dims",
        "broadcast_to",
        "strided_slice",
        "flatten",
    )
)
"""Operators that move values or change their type, but not the values."""

_LOOKUPS = {"relax.take": 1, "relax.one_hot": 0, "relax.gather_elements": 1, "relax.gather_nd": 1}
"""Operators that read an index, and the position of the index among their arguments."""

_INDEXED = frozenset(
    (*_LOOKUPS, "relax.scatter_elements", "relax.scatter_nd", "relax.call_tir", "relax.dynamic_strided_slice")
)
"""Operators in which a value may be an index."""

_CHANNELS = (1, 3, 4)
_IMAGE_SIDE = 8  # pixels; a smaller tensor is not taken for an image
_FEWEST = 3  # choices of an input that is compared with constants; with two, it may be a mask
_BYTES = ("uint8", "int8")
_WIDE = ("int32", "int64")  # integers that hold any index
_UNBOUNDED = 1 << 64


class _Trace(NamedTuple):
    """A value that is `inputs[position] + offset`, perhaps in another shape or order.

    `whole` is False where elements may have been left out or changed.  `wrapped` is the number that was added to
    negative values, or 0.
    """

    position: int
    offset: int
    whole: bool = True
    wrapped: int = 0


class _Found:
    """The findings about inputs, which are named by their positions."""

    def __init__(self) -> None:
        self.below: dict[int, int] = {}  # inputs that are indices: the number that they must be below
        self.conditions: set[int] = set()  # inputs that select between two values
        self.indices: set[int] = set()  # inputs from which an index of unknown range may be computed
        self.bounds: dict[int, tuple[int, int]] = {}  # indices all of whose values are checked: least and greatest
        self.bounded: dict[Any, int] = {}  # variable that reads by an input alone, or marks it -> that input
        self.used: set[int] = set()  # inputs that the network reads

    def bound(self, variable: relax.Var, trace: _Trace, size: int, from_end: int) -> None:
        """Note that every element of the traced value is an index of a table of `size` entries, read by `variable`.

        Negative values down to `-from_end` are valid as well.
        """
        least, greatest = self.bounds.get(trace.position, (-_UNBOUNDED, _UNBOUNDED))
        self.bounds[trace.position] = (
            max(least, -from_end - trace.offset),
            min(greatest, size - 1 - trace.offset),
        )
        self.bounded[variable] = trace.position

    def note(self, trace: _Trace, size: int) -> None:
        """Note that the traced value is an index below `size`."""
        below = size - trace.offset
        self.below[trace.position] = min(below, self.below.get(trace.position, below))


def with_kinds(module: tvm.IRModule, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The inputs of `module`'s `main`, each with its `values`, `below` and `bounds` as far as they are found."""
    found = _look(module["main"])
    demands = _demands(module["main"], inputs)
    described = (_with_kind(position, tensor, found) for position, tensor in enumerate(inputs))
    return tuple(with_demand(tensor, demands.get(tensor.name, InputDemand())) for tensor in described)


def with_demand(tensor: Tensor, demand: InputDemand) -> Tensor:
    """The input with what a graph demands of its values, where it is no index."""
    if tensor.values == "ids" or tensor.bounds is not None:
        return tensor
    if demand.choices:
        return msgspec.structs.replace(tensor, values="choices", choices=demand.choices)
    return msgspec.structs.replace(tensor, values="positive") if demand.positive and not tensor.values else tensor


def _demands(main: relax.Function, inputs: Sequence[Tensor]) -> dict[str, InputDemand]:
    """What `main` demands of its inputs, by their names."""

    def steps() -> Iterator[InputStep]:
        for block in main.body.blocks:
            for binding in block.bindings:
                value = getattr(binding, "value", None)
                if isinstance(value, relax.Var):
                    yield InputStep("identity", (value,), (binding.var,))
                elif isinstance(value, relax.Call):
                    name = str(getattr(value.op, "name", "")).removeprefix("relax.")
                    yield InputStep(name, tuple(value.args), (binding.var,))

    def constant(key: Any) -> npt.NDArray[Any] | None:
        is_small = isinstance(key, tvm.ir.GenericConst) and math.prod(key.value.shape) <= MOST_CHOICES
        return np.asarray(key.value.numpy()) if is_small else None

    if not isinstance(main.body, relax.SeqExpr):
        return {}
    described = {
        parameter: (tensor.dtype, math.prod(tensor.shape))
        for parameter, tensor in zip(main.params, inputs, strict=False)
    }
    names = dict(zip(main.params, (tensor.name for tensor in inputs), strict=False))
    return {names[key]: demand for key, demand in find_demands(described, steps(), constant).items()}


def bounded_lookups(module: tvm.IRModule, inputs: Sequence[Tensor]) -> frozenset[relax.Var]:
    """The variables of `main` that read by an index which is an input with bounds, or that mark such an index.

    `inputs` are those that `with_kinds` returned.  Such an index is checked before a run, and needs no other check.
    """
    found = _look(module["main"])
    return frozenset(variable for variable, position in found.bounded.items() if inputs[position].bounds is not None)


def _with_kind(position: int, tensor: Tensor, found: _Found) -> Tensor:
    name = tensor.name.lower()
    integral = tensor.dtype.startswith(("int", "uint"))
    kind = ""
    if bounds := _kept(found.bounds.get(position), tensor.dtype):
        tensor = msgspec.structs.replace(tensor, bounds=bounds)
    if position in found.below:
        return msgspec.structs.replace(tensor, values="ids", below=found.below[position])
    if position not in found.used and tensor.dtype != "bool":
        return msgspec.structs.replace(tensor, values="sizes")
    if position in found.indices and "mask" not in name:
        return tensor
    if "mask" in name or (position in found.conditions and (integral or tensor.dtype == "bool")):
        kind = "mask"
    elif tensor.dtype in _BYTES:
        kind = "bytes"
    elif integral:
        kind = "lengths" if "length" in name and len(tensor.shape) < 2 else "counts"
    elif _is_image(tensor):
        kind = "image"
    return msgspec.structs.replace(tensor, values=kind)


def _kept(bounds: tuple[int, int] | None, dtype: str) -> tuple[int, int] | None:
    """The intersection of the bounds with the range of an integer type; None where it is empty."""
    if bounds is None or not dtype.startswith(("int", "uint")):
        return None
    limits = np.iinfo(dtype)
    least, greatest = max(bounds[0], int(limits.min)), min(bounds[1], int(limits.max))
    return (least, greatest) if least <= greatest else None


def _is_image(tensor: Tensor) -> bool:
    """Whether it has four dimensions, as many channels as an image (first or last), and sides of 8 pixels or more."""
    if len(tensor.shape) != 4 or not tensor.dtype.startswith(("float", "bfloat")):
        return False
    _, first, middle, last = tensor.shape
    if first in _CHANNELS:
        return min(middle, last) >= _IMAGE_SIDE
    return last in _CHANNELS and min(first, middle) >= _IMAGE_SIDE


def _look(main: relax.Function) -> _Found:
    found = _Found()
    traces: dict[Any, _Trace] = {parameter: _Trace(i, 0) for i, parameter in enumerate(main.params)}
    touched: dict[Any, set[int]] = {parameter: {i} for i, parameter in enumerate(main.params)}
    negative: dict[_Trace, list[relax.Var]] = {}
    numbers: dict[Any, Any] = {}
    used: set[Any] = set()
    relax.analysis.post_order_visit(main.body, lambda each: used.add(each) if isinstance(each, relax.Var) else None)
    found.used = {i for i, parameter in enumerate(main.params) if parameter in used}
    if not isinstance(main.body, relax.SeqExpr):
        return found
    for block in main.body.blocks:
        for binding in block.bindings:
            value = getattr(binding, "value", None)
            if isinstance(value, relax.Var):
                if value in traces:
                    traces[binding.var] = traces[value]
                touched[binding.var] = touched.get(value, set())
            elif isinstance(value, relax.Call):
                if (sizes := _sizes_read(value, numbers)) is not None:
                    numbers[binding.var] = sizes
                trace = _read(binding.var, value, traces, touched, negative, numbers, found)
                if trace is not None:
                    traces[binding.var] = trace
                touched[binding.var] = _reached(value, touched)
            elif isinstance(value, relax.TupleGetItem | relax.Tuple):
                fields = value.fields if isinstance(value, relax.Tuple) else [value.tuple_value]
                touched[binding.var] = set().union(*(touched.get(field, set()) for field in fields))
    return found


def _read(
    variable: relax.Var,
    call: relax.Call,
    traces: dict[Any, _Trace],
    touched: dict[Any, set[int]],
    negative: dict[_Trace, list[relax.Var]],
    numbers: dict[Any, Any],
    found: _Found,
) -> _Trace | None:
    """Note what this call shows about inputs; return the trace of its result, which is bound to `variable`.

    `touched` has the inputs from which each variable is computed.  `negative` has, by trace, the variables that are
    true where its value is negative, and `numbers` the values of variables that hold sizes of shapes.
    """
    name = str(getattr(call.op, "name", ""))
    arguments = list(call.args)
    known = [traces.get(argument) for argument in arguments]
    if (mark := read_mark(call)) is not None:
        trace = traces.get(mark.index)
        if trace is None or not mark.checked:
            found.indices |= touched.get(mark.index, set())
            return None
        fewest = min(mark.sizes)
        if fewest > trace.offset:
            found.note(trace, fewest)
        if trace.whole and not trace.wrapped and fewest == max(mark.sizes):
            found.bound(variable, trace, fewest, fewest if mark.negative else 0)
        return None
    if name in _LOOKUPS:
        index = _LOOKUPS[name]
        size = _size(name, call)
        if (trace := known[index]) is not None and size is not None and size > trace.offset:
            found.note(trace, size)
            if name == "relax.take" and str(call.attrs.mode) == "fast" and trace.whole and trace.wrapped in (0, size):
                found.bound(variable, trace, size, trace.wrapped)
        else:
            found.indices |= touched.get(arguments[index], set())
    elif name in _INDEXED:
        found.indices |= _reached(call, touched)
    elif name == "relax.equal":  # with the constants 0, 1, 2, ...: the input is one of them
        for trace, other in ((known[0], arguments[1]), (known[1], arguments[0])):
            if trace is not None and (choices := _choices(other)):
                found.note(trace, choices)
    elif name == "relax.where" and known[0] is not None:
        found.conditions.add(known[0].position)
    elif name in _MOVES:
        return None if known[0] is None else known[0]._replace(whole=known[0].whole and _keeps_all(name, call))
    if name == "relax.add":
        for trace, other in ((known[0], arguments[1]), (known[1], arguments[0])):
            if trace is not None and (constant := _number(other, numbers)) is not None:
                return trace._replace(offset=trace.offset + constant, whole=trace.whole and not trace.wrapped)
    if name == "relax.where":  # perhaps where(index < 0, index + size, index)
        branches = [trace for trace in known[1:] if trace is not None]
        if branches and _reached(call, touched) == {branches[0].position}:
            lowest = min(branches, key=lambda trace: trace.offset)
            size = max(branches, key=lambda trace: trace.offset).offset - lowest.offset
            whole = len(branches) == 2 and all(trace.whole and not trace.wrapped for trace in branches)
            # `size` is added to negative values alone
            whole = (
                whole
                and size > 0
                and known[2] == lowest
                and any(call.args[0].same_as(v) for v in negative.get(lowest, ()))
            )
            return lowest._replace(whole=whole, wrapped=size if whole else 0)
    if name == "relax.less" and known[0] is not None and _number(arguments[1]) == 0:
        negative.setdefault(known[0], []).append(variable)
    return None


def _keeps_all(name: str, call: relax.Call) -> bool:
    """Whether this operator of `_MOVES` keeps every element, and every value that an index may have."""
    if name == "relax.strided_slice":
        return False
    return name != "relax.astype" or str(call.attrs.dtype) in _WIDE


def _reached(call: relax.Call, touched: dict[Any, set[int]]) -> set[int]:
    """The inputs from which any argument is computed."""
    reached: set[int] = set()
    for argument in call.args:
        fields = argument.fields if isinstance(argument, relax.Tuple) else [argument]
        for field in fields:
            reached |= touched.get(field, set())
    return reached


def _size(name: str, call: relax.Call) -> int | None:
    """The number of entries that the index of a lookup may name; None when it is not known."""
    if name == "relax.one_hot":
        return int(call.attrs.depth)
    shape = getattr(call.args[0].ty, "shape", None)
    if not isinstance(shape, relax.ShapeExpr):
        return None
    sizes = [int(size) for size in shape.values]
    if not sizes:
        return None
    if name == "relax.gather_nd":
        return min(sizes)
    axis = getattr(call.attrs, "axis", None)
    return sizes[int(axis)] if axis is not None else max(1, math.prod(sizes))


def _choices(expression: Any) -> int:
    """The number of values of a constant that holds exactly 0, 1, 2 and so on, three or more of them; else 0."""
    if not isinstance(expression, tvm.ir.GenericConst):
        return 0
    values = np.unique(expression.value.numpy())
    if values.dtype.kind not in "iu" or values.size < _FEWEST or (values != np.arange(values.size)).any():
        return 0
    return int(values.size)


def _sizes_read(call: relax.Call, numbers: dict[Any, Any]) -> Any:
    """The sizes that this call takes from a tensor's shape (importers do not fold such calls); else None."""
    name = str(getattr(call.op, "name", ""))
    if name == "relax.shape_of":
        shape = getattr(call.args[0].ty, "shape", None)
        if isinstance(shape, relax.ShapeExpr) and all(isinstance(size, int | tvm.tirx.IntImm) for size in shape.values):
            return np.array([int(size) for size in shape.values], np.int64)
    elif name == "relax.shape_to_tensor":
        return numbers.get(call.args[0])
    elif name == "relax.take" and call.args[0] in numbers and (at := _number(call.args[1])) is not None:
        sizes = numbers[call.args[0]]
        if sizes.ndim == 1 and -len(sizes) <= at < len(sizes):
            return sizes[at]
    return None


def _number(expression: Any, numbers: dict[Any, Any] | None = None) -> int | None:
    """The integer that all elements of a constant, or a size in `numbers`, are equal to; else None."""
    if numbers and expression in numbers:
        sizes = np.asarray(numbers[expression])
        return int(sizes) if not sizes.ndim else None
    if not isinstance(expression, tvm.ir.GenericConst):
        return None
    values = expression.value.numpy().ravel()
    if values.dtype.kind not in "iu" or not values.size or (values != values[0]).any():
        return None
    return int(values[0])
