"""What follows a convolution, as one expression of its result: so that it can be computed wherever the result is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tvm
import tvm_ffi

from kintune.compiler.kernels.blocks import Loops, constant_shape, loads_in

__all__ = ["Epilogue", "epilogue_of"]


class Epilogue(NamedTuple):
    """The one block that reads a buffer, elementwise: it stores `value` in `target` at `indices`.

    `axes` are the block's variables for the axes of the buffer that is read, None for an axis of one element.  One
    variable may stand for the last two axes together: it takes the place of the last one, None that of the other, and
    `split` is the extent of the last one.
    """

    source: Any
    target: Any
    value: Any
    indices: tuple[Any, ...]
    axes: tuple[Any, ...]
    split: int = 0

    @property
    def operands(self) -> list[Any]:
        """The other buffers that are read."""
        found = dict.fromkeys(load.source for load in loads_in(self.value))
        return [buffer for buffer in found if not buffer.same_as(self.source)]

    @property
    def is_vectorised(self) -> bool:
        """Whether values that are neighbours in the buffer that is read are neighbours in the result."""
        last = self.axes[-1]
        return last is not None and bool(self.indices[-1].same_as(last))

    def store(self, element: Any, at: Sequence[Any]) -> Any:
        """The statement that stores the value for one element of the buffer, which is found at these indices."""
        return tvm.tirx.BufferStore(self.target, self.value_of(element, at), self.indices_of(at))

    def value_of(self, element: Any, at: Sequence[Any]) -> Any:
        """The value for one element of the buffer, which is found at these indices."""
        return self._mapped(self.value, element, at)

    def indices_of(self, at: Sequence[Any]) -> list[Any]:
        """The indices in the result of what follows from the element at these indices."""
        return [self._mapped(index, None, at) for index in self.indices]

    def _joined(self, at: Sequence[Any]) -> Sequence[Any]:
        """The indices, of which the last one counts over the last two axes if these are one of the result's."""
        if not self.split:
            return at
        return [*at[:-1], at[-2] * self.split + at[-1]]

    def _mapped(self, expression: Any, element: Any, at: Sequence[Any]) -> Any:
        replaced = [(axis, index) for axis, index in zip(self.axes, self._joined(at), strict=True) if axis is not None]

        def variable(found: Any) -> Any:
            return next((index for axis, index in replaced if axis.same_as(found)), found)

        def load(found: Any) -> Any:
            return element if found.source.same_as(self.source) else found

        return tvm_ffi.structural_map(expression, [(tvm.ir.TensorLoad, load), (tvm.tirx.Var, variable)])


def epilogue_of(nests: Sequence[Loops], name: str) -> Epilogue | None:
    """What follows the block of that name, which another one reads; None where that is not elementwise."""
    source = next(nest.block.body.buffer for nest in nests if nest.block.name_hint == name)
    readers = [nest for nest in nests if nest.block.name_hint != name and loads_in(nest.block.body, source)]
    if len(readers) != 1:
        return None
    reader, shape = readers[0], constant_shape(source)
    block = reader.block
    if not isinstance(block.body, tvm.tirx.BufferStore) or reader.variables(reducing=True):
        return None
    analyzer = tvm.sym.Analyzer()
    for each in block.iter_vars:
        analyzer.bind(each.var, each.dom)
    places = [tuple(map(analyzer.simplify, load.indices)) for load in loads_in(block.body, source)]
    first = places[0]
    if shape is None or not all(_same(a, b) for place in places[1:] for a, b in zip(first, place, strict=True)):
        return None
    split = _split(block, first, shape)
    axes = []
    for axis, (index, extent) in enumerate(zip(first, shape, strict=True)):
        if split is not None and axis >= len(shape) - 2:
            axes.append(split if axis == len(shape) - 1 else None)
            continue
        found = next((each for each in block.iter_vars if each.var.same_as(index)), None)
        is_zero = isinstance(index, tvm.tirx.IntImm) and int(index) == 0
        if found is None and not (is_zero and extent == 1):
            return None
        if found is not None and int(found.dom.extent) != extent:
            return None
        axes.append(None if found is None else found.var)
    named = [axis for axis in axes if axis is not None]
    if any(axis.same_as(other) for at, axis in enumerate(named) for other in named[:at]):
        return None
    rest = [each for each in block.iter_vars if not any(each.var.same_as(axis) for axis in named)]
    if any(int(each.dom.extent) != 1 for each in rest):
        return None
    target, value, indices = block.body.buffer, block.body.value, tuple(block.body.indices)
    width = 0 if split is None else shape[-1]
    return _without(rest, Epilogue(source, target, value, indices, tuple(axes), width))


def _split(block: Any, indices: Sequence[Any], shape: tuple[int, ...]) -> Any:
    """The variable that counts over the last two axes together; None where there is none."""
    if len(shape) < 2:
        return None
    outer, inner, (groups, width) = *indices[-2:], shape[-2:]
    if not isinstance(outer, tvm.tirx.FloorDiv) or not isinstance(inner, tvm.tirx.FloorMod):
        return None
    by = [each.b for each in (outer, inner)]
    if not outer.a.same_as(inner.a) or not all(isinstance(b, tvm.tirx.IntImm) and int(b) == width for b in by):
        return None
    found = next((each for each in block.iter_vars if each.var.same_as(outer.a)), None)
    return found.var if found is not None and int(found.dom.extent) == groups * width else None


def _same(a: Any, b: Any) -> bool:
    return bool(a.same_as(b)) or (
        isinstance(a, tvm.tirx.IntImm) and isinstance(b, tvm.tirx.IntImm) and int(a) == int(b)
    )


def _without(rest: Sequence[Any], epilogue: Epilogue) -> Epilogue:
    """The epilogue in which the variables of one iteration are zero."""

    def zero(found: Any) -> Any:
        return tvm.tirx.const(0, str(found.ty.dtype)) if any(each.var.same_as(found) for each in rest) else found

    def mapped(expression: Any) -> Any:
        return tvm_ffi.structural_map(expression, [(tvm.tirx.Var, zero)])

    return epilogue._replace(value=mapped(epilogue.value), indices=tuple(mapped(index) for index in epilogue.indices))
