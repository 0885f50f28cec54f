"""What rewriting passes have in common: passes over functions of a module, bindings, and properties of expressions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

__all__ = [
    "CALL_KERNEL",
    "RESHAPES",
    "Bindings",
    "Rewriter",
    "along",
    "axis_before",
    "bindings_of",
    "convolution_like",
    "emit_as",
    "integers_in",
    "kernel_calls",
    "kernels_pass",
    "layouts_of",
    "operator_of",
    "pass_of",
    "shape_of",
    "static_shape",
    "transposed_axes",
    "value_of",
    "variables_in",
    "with_main",
]

CALL_KERNEL = "relax.call_tir"
"""The operator that calls a PrimFunc of the module."""

RESHAPES = frozenset({"relax.expand_dims", "relax.flatten", "relax.reshape", "relax.squeeze"})
"""The operators that only change the shape of a tensor."""


class Bindings:
    """What the variables of dataflow blocks are bound to, and by what they are read."""

    def __init__(self) -> None:
        self.values: dict[relax.Var, Any] = {}
        self._readers: dict[relax.Var, list[relax.Var | None]] = {}

    def learn(self, block: relax.BindingBlock) -> None:
        """Add the bindings of a block."""
        for binding in block.bindings:
            self.values[binding.var] = binding.value
            for variable in variables_in(binding.value):
                self._readers.setdefault(variable, []).append(binding.var)
            if not isinstance(binding.var, relax.DataflowVar):
                self._readers.setdefault(binding.var, []).append(None)

    def value(self, expression: relax.Expr) -> Any:
        """What a variable is bound to; any other expression itself."""
        return self.values.get(expression, expression) if isinstance(expression, relax.Var) else expression

    def readers(self, variable: relax.Var) -> list[relax.Var | None]:
        """The variables whose values read this one, once for each place; None stands for a reader outside the block."""
        return self._readers.get(variable, [])

    def uses(self, variable: relax.Var) -> int:
        """The number of places in the block that read a variable."""
        return sum(reader is not None for reader in self.readers(variable))

    def is_inner(self, expression: relax.Expr, uses: int = 1) -> bool:
        """Whether this is a variable of the block that is read once, or in so many places."""
        return isinstance(expression, relax.DataflowVar) and self.uses(expression) == uses

    def constant(self, expression: relax.Expr) -> tvm.ir.GenericConst | None:
        """A constant, or the one that a variable is bound to; None for others."""
        found = self.value(expression)
        return found if isinstance(found, tvm.ir.GenericConst) else None

    def numbers(self, expression: relax.Expr) -> NDArray[Any] | None:
        """The value of a constant, or of a variable bound to one; None for others."""
        found = self.constant(expression)
        return None if found is None else value_of(found)

    def number(self, expression: relax.Expr) -> float | None:
        """The value of a constant of one element; None for others."""
        found = self.numbers(expression)
        return None if found is None or found.size != 1 else float(found.reshape(()))


class Rewriter(PyExprMutator):  # type: ignore[misc]
    """The base of passes that are mutators (`pass_of`); they know the bindings of a dataflow block before its visit."""

    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self._module = module
        self._bindings = Bindings()

    def visit_dataflow_block_(self, block: relax.DataflowBlock) -> relax.BindingBlock:
        """Learn what has to be known of the block, and visit it."""
        self.learn(block)
        return super().visit_dataflow_block_(block)

    def learn(self, block: relax.DataflowBlock) -> None:
        """Note the bindings of a block; subclasses find here what they rewrite."""
        self._bindings.learn(block)


def pass_of(rewriter: type[Rewriter], **options: Any) -> tvm.transform.Pass:
    """The pass in which a new rewriter visits all Relax functions of a module; it is made of that and the `options`."""
    made = mutator(rewriter)

    def rewrite(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        visitor = made(module, **options)
        for variable, function in list(module.functions_items()):
            if isinstance(function, relax.Function):
                visitor.builder_.update_func(variable, visitor.visit_expr(function))
        return visitor.builder_.get()

    return tvm.transform.module_pass(rewrite, opt_level=0, name=rewriter.__name__.lstrip("_"))


def with_main(module: tvm.IRModule, rewriter: PyExprMutator) -> tvm.IRModule:
    """The module whose function `main` a rewriter of the module has visited."""
    rewriter.builder_.update_func(module.get_global_var("main"), rewriter.visit_expr(module["main"]))
    return rewriter.builder_.get()


def kernels_pass(
    name: str, changed: Callable[[str, tvm.tirx.PrimFunc], tvm.tirx.PrimFunc | None]
) -> tvm.transform.Pass:
    """A pass over the PrimFuncs of a module; `changed` gets the name of each, and returns None where it stays."""

    def rewrite(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        functions = dict(module.functions_items())
        for variable, function in functions.items():
            if isinstance(function, tvm.tirx.PrimFunc):
                made = changed(str(variable.name_hint), function)
                functions[variable] = function if made is None else made
        return tvm.IRModule(functions, attrs=module.attrs)

    return tvm.transform.module_pass(rewrite, opt_level=0, name=name)


def bindings_of(function: relax.Function) -> list[relax.Binding]:
    """All bindings of a function, in order."""
    return [binding for block in function.body.blocks for binding in block.bindings]


def emit_as(builder: relax.BlockBuilder, variable: relax.Var, expression: relax.Expr) -> relax.Var:
    """Bind an expression to a new variable of a dataflow block, with the name of `variable`.

    The name says that it holds the value of the same node of the user's graph (see `provenance`), perhaps in another
    layout or shape.
    """
    normal = builder.normalize(expression)
    made = relax.DataflowVar(str(variable.name), normal.ty)
    builder.emit_normalized(relax.VarBinding(made, normal))
    return made


def operator_of(expression: relax.Expr) -> str:
    """The name of the operator that the expression calls (`relax.add`); "" where it calls none."""
    return str(getattr(expression.op, "name", "")) if isinstance(expression, relax.Call) else ""


def integers_in(group: relax.Expr) -> list[int] | None:
    """The integers in a tuple operand; None where it is no tuple, or a field is no constant integer."""
    fields = list(group.fields) if isinstance(group, relax.Tuple) else None
    values = [getattr(field, "value", None) for field in fields or ()]
    known = [int(value) for value in values if isinstance(value, int)]
    return known if fields is not None and len(known) == len(values) else None


def value_of(constant: tvm.ir.GenericConst) -> NDArray[Any]:
    """A copy of the constant's tensor."""
    return np.asarray(constant.value.numpy())


def static_shape(expression: relax.Expr) -> tuple[int, ...] | None:
    """The tensor's shape where every extent is known; None otherwise."""
    return shape_of(expression.ty)


def shape_of(kind: Any) -> tuple[int, ...] | None:
    """The shape of the tensors of a type where every extent is known; None otherwise."""
    shape = getattr(kind, "shape", None)
    extents = getattr(shape, "values", shape)
    if extents is None or not isinstance(kind, relax.TensorType):
        return None
    known = [int(extent) for extent in extents if isinstance(extent, int | tvm.tirx.IntImm)]
    return tuple(known) if len(known) == len(extents) else None


def along(values: NDArray[Any], axis: int, rank: int) -> NDArray[Any]:
    """One value, or one for each element of `axis`, shaped to broadcast with a tensor of this rank."""
    return values.reshape([-1 if place == axis % rank else 1 for place in range(rank)])


def variables_in(expression: relax.Expr) -> list[relax.Var]:
    """The variables in an expression, each as often as it occurs."""
    found: list[relax.Var] = []
    relax.analysis.post_order_visit(
        expression, lambda part: found.append(part) if isinstance(part, relax.Var) else None
    )
    return found


def kernel_calls(module: tvm.IRModule) -> list[relax.Call]:
    """The calls of PrimFuncs in `main`, in order."""
    found: list[relax.Call] = []

    def visit(part: relax.Expr) -> None:
        if operator_of(part) == CALL_KERNEL:
            found.append(part)

    relax.analysis.post_order_visit(module["main"], visit)
    return found


def transposed_axes(call: relax.Call) -> list[int]:
    """The axes of the operand of a transpose, in the order in which the result has them."""
    rank = int(call.args[0].ty.ndim)
    return list(range(rank))[::-1] if call.attrs.axes is None else [int(axis) % rank for axis in call.attrs.axes]


def axis_before(call: relax.Call, axis: int) -> int | None:
    """The axis of the operand that a transpose or reshape makes axis `axis` of its result.

    None for other operators, and where a reshape splits this axis or merges it with others.
    """
    if operator_of(call) == "relax.permute_dims":
        return transposed_axes(call)[axis]
    if operator_of(call) not in RESHAPES:
        return None
    before, after = static_shape(call.args[0]), static_shape(call)
    if before is None or after is None or 0 in before:
        return None
    wanted = math.prod(after[:axis]), after[axis], math.prod(after[axis + 1 :])
    for place, extent in enumerate(before):
        if (math.prod(before[:place]), extent, math.prod(before[place + 1 :])) == wanted:
            return place
    return None


def layouts_of(call: relax.Call) -> tuple[str, str, str]:
    """The layouts of a convolution's data, weights and result."""
    return str(call.attrs.data_layout), str(call.attrs.kernel_layout), str(call.attrs.out_layout)


def convolution_like(
    call: relax.Call,
    data: relax.Expr,
    weights: relax.Expr,
    padding: Any = None,
    *,
    layouts: Sequence[str] = (),
    dtype: str = "",
) -> relax.Call:
    """The convolution `call` of other operands; with other padding, layouts or element type if these are given."""
    a, build = call.attrs, getattr(relax.op.nn, operator_of(call).removeprefix("relax.nn."))
    around, kept = a.padding if padding is None else padding, layouts or layouts_of(call)
    return build(data, weights, a.strides, around, a.dilation, a.groups, *kept, dtype or a.out_dtype)
