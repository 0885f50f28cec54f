"""Finds the kernel that computes each of the user's nodes.

TVM's passes keep the names of variables until operators are fused, and the spans of calls after that.  So each binding
of the imported `main` gets a name with its number, and each fused kernel a span with its number.  Fusion itself is
followed by value numbering: a fused function computes values that single operators computed before.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from kintune.compiler.graph.rewriting import CALL_KERNEL, bindings_of, operator_of, variables_in, with_main
from kintune.core.kernel_call import SourceNode
from kintune.models.source_graph import absorbed

if TYPE_CHECKING:
    from kintune.models.model import ImportedModel

__all__ = [
    "KernelOrigin",
    "Step",
    "Trail",
    "Values",
    "fused_kernels",
    "keeping_marks",
    "mark_kernels",
    "mark_of",
    "number_bindings",
    "origins",
    "read_steps",
]

_NAME = "from_"
_NUMBER = re.compile(rf"{_NAME}(\d+)(_\d+)*$")
_OPERATOR = re.compile(r"(.*?[a-z_](?:[123]d)?)\d*$")
_KERNEL = "kintune.kernel"
_ARRANGING = frozenset({"expand_dims", "permute_dims", "reshape", "squeeze", "transpose"})
_PACKING = "_weight_prepack"  # the suffix of TVM's names of kernels that pack weights


class Step(NamedTuple):
    """A binding of `main` before fusion.

    `source` is the number of the imported binding whose value it holds, or -1 if a pass has added it.  `operator` is
    the name of the operator ("" where it calls none).  `reads` are the numbers of the steps that it reads.
    """

    source: int
    operator: str
    reads: tuple[int, ...]


class Trail(NamedTuple):
    """The origin of a network's kernels: the names of the imported variables, the steps, and each kernel's steps."""

    variables: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    kernels: tuple[tuple[int, ...], ...] = ()


class KernelOrigin(NamedTuple):
    """The user's nodes and the operators that a kernel computes; see `kintune.core.kernel_call.CallRecord`."""

    nodes: tuple[SourceNode, ...] = ()
    operators: tuple[str, ...] = ()
    inserted: bool = False


def number_bindings(module: tvm.IRModule) -> tuple[tvm.IRModule, tuple[str, ...]]:
    """Renames the variables of `main` by their numbers; returns the module and the old names in order."""
    rewriter = _Numbered(module)
    return with_main(module, rewriter), tuple(rewriter.names)


def read_steps(module: tvm.IRModule) -> tuple[tuple[Step, ...], Values]:
    """The steps of `main`, before the pass `FuseOps`, and the values that they compute."""
    numbers: dict[relax.Var, int] = {}
    steps: list[Step] = []
    values = Values(module)
    for binding in bindings_of(module["main"]):
        kernel = operator_of(binding.value) == CALL_KERNEL
        operator = str(binding.value.args[0].name_hint) if kernel else operator_of(binding.value)
        named = _NUMBER.match(str(binding.var.name))
        reads = {numbers[variable] for variable in variables_in(binding.value) if variable in numbers}
        values.bind(binding, len(steps))
        numbers[binding.var] = len(steps)
        steps.append(Step(int(named[1]) if named else -1, _plain(operator), tuple(sorted(reads))))
    return tuple(steps), values


def fused_kernels(module: tvm.IRModule, before: Values) -> tuple[tuple[int, ...], ...]:
    """The steps of each kernel call of `main`, in order, after the pass `FuseOps`.

    One function may stand for several equal groups of operators.  So the steps of a call are found by the values that
    it computes; `before` are the values that `read_steps` returned.
    """
    kernels = []
    values = Values(module, before)
    for binding in bindings_of(module["main"]):
        found, called = values.bind(binding), getattr(binding.value, "op", None)
        if operator_of(binding.value) == CALL_KERNEL or isinstance(called, tvm.ir.GlobalVar):
            kernels.append(tuple(sorted(found)))
    return tuple(kernels)


class Values:
    """Value numbering: equal computations on equal operands have the same number."""

    def __init__(self, module: tvm.IRModule, before: Values | None = None) -> None:
        """`module` is a network; `before` are the values of an earlier form of it, whose numbers are continued."""
        self._module = module
        self._numbers: dict[Any, int] = {} if before is None else before._numbers
        self._steps: dict[int, list[int]] = {} if before is None else {n: list(s) for n, s in before._steps.items()}
        self._known: dict[relax.Var, Any] = {v: ("input", i) for i, v in enumerate(module["main"].params)}
        self._found: list[int] = []

    def bind(self, binding: relax.Binding, step: int | None = None) -> list[int]:
        """Number the value of a binding of `main`, and return the steps whose values it computes.

        With `step`, the binding is this step, if it is a kernel call.
        """
        self._found = []
        value = self._known[binding.var] = self._value(binding.value, self._known)
        if step is not None and operator_of(binding.value) == CALL_KERNEL:
            self._steps.setdefault(value, []).append(step)
        return self._found

    def _value(self, expression: Any, known: dict[relax.Var, Any]) -> Any:
        match expression:
            case relax.Var():
                return known.get(expression, ("unknown", str(expression.name)))
            case tvm.ir.GenericConst():
                return ("constant", expression.value.__chandle__())
            case relax.Tuple():
                return ("tuple", *(self._value(field, known) for field in expression.fields))
            case relax.TupleGetItem():
                whole, index = self._value(expression.tuple_value, known), int(expression.index)
                fields = whole[1:] if isinstance(whole, tuple) and whole[0] == "tuple" else ()
                return fields[index] if index < len(fields) else ("item", whole, index)
            case relax.Call() if isinstance(expression.op, tvm.ir.GlobalVar):
                return self._called(self._module[expression.op], [self._value(a, known) for a in expression.args])
            case relax.Call():
                return self._call(expression, known)
        return ("other", str(expression))

    def _called(self, function: relax.Function, arguments: list[Any]) -> Any:
        """The value of a call of a function of fused operators."""
        known = dict(zip(function.params, arguments, strict=True))
        for block in function.body.blocks:
            for binding in block.bindings:
                known[binding.var] = self._value(binding.value, known)
        return self._value(function.body.body, known)

    def _call(self, call: relax.Call, known: dict[relax.Var, Any]) -> int:
        if operator_of(call) == CALL_KERNEL:
            key = ("kernel", str(call.args[0].name_hint), *(self._value(argument, known) for argument in call.args[1:]))
        else:
            operands = tuple(self._value(argument, known) for argument in call.args)
            key = ("operator", operator_of(call), str(call.attrs), operands)
        number = self._numbers.setdefault(key, len(self._numbers))
        if steps := self._steps.get(number):
            self._found.append(steps.pop(0) if len(steps) > 1 else steps[0])
        return number


def mark_kernels(module: tvm.IRModule, kernels: Sequence[tuple[int, ...]]) -> tvm.IRModule:
    """The module in which each kernel call of `main` is marked with its number, after the pass `FuseTIR`.

    If the number of calls is not that of `kernels`, the module is returned without marks.
    """
    count = len(_marks(module))
    return with_main(module, _Marked(module, range(count))) if count == len(kernels) else module


def keeping_marks(inner: tvm.transform.Pass) -> tvm.transform.Pass:
    """A pass that applies `inner`, and then restores the marks of the kernel calls of `main`.

    `inner` must keep the order of the calls, and add only calls of kernels that pack weights.
    """

    def rewrite(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        if all(variable.name_hint != "main" for variable in module.get_global_vars()):
            return inner(module)
        marks, rewritten = _marks(module), inner(module)
        if len(marks) != len(_marks(rewritten)):
            return rewritten
        return with_main(rewritten, _Marked(rewritten, marks))

    return tvm.transform.module_pass(rewrite, opt_level=0, name="KeepMarks")


def mark_of(call: relax.Call) -> int | None:
    """The number with which a call is marked; None where it has no mark."""
    span = call.span
    return int(span.line) if span is not None and str(span.source_name.name) == _KERNEL else None


def origins(trail: Trail, model: ImportedModel) -> tuple[KernelOrigin, ...]:
    """The nodes of the user's graph that each kernel computes, in the order of the kernels."""
    graph = _UserGraph(model)
    producers = [graph.producer(model.sources.get(name, "")) for name in trail.variables]
    own = _computed(trail.steps, [producers[step.source] if step.source >= 0 else None for step in trail.steps])
    helped = _helped(trail.steps, own)
    kernel_of: dict[int, int] = {}  # node -> the first kernel that computes it
    inserted: set[int] = set()
    for number, kernel in enumerate(trail.kernels):
        found = [own[step] for step in kernel if own[step] is not None]
        if not found:
            inserted.add(number)
        for node in found:
            kernel_of.setdefault(node, number)  # type: ignore[arg-type]
    taken_in = absorbed(model.graph, [tensor.name for tensor in model.inputs], kernel_of)
    result = []
    for number, kernel in enumerate(trail.kernels):
        by = helped if number in inserted else own
        nodes = {node for step in kernel if (node := by[step]) is not None}
        taken = set(taken_in.get(number, ()))
        operators = tuple(trail.steps[step].operator for step in kernel if trail.steps[step].operator)
        named = tuple(graph.nodes[node] for node in sorted(nodes | taken))
        result.append(KernelOrigin(named, operators, number in inserted and bool(nodes)))
    return tuple(result)


class _UserGraph:
    """The user's nodes by number, in the order of the graph."""

    def __init__(self, model: ImportedModel) -> None:
        self.nodes = [each.node for each in model.graph]
        self._producers = {tensor: number for number, each in enumerate(model.graph) for tensor in each.outputs}
        self._numbers = {each.node.name: number for number, each in enumerate(model.graph)}
        self._described = model.nodes

    def producer(self, tensor: str) -> int | None:
        """The number of the node that computes a tensor; None where it is not known.

        A node that simplification has added is named after a tensor that it has removed, with a suffix; it stands for
        the node of that tensor.  One that is named after no tensor gets a new number, with its own description.
        """
        if tensor not in self._producers:
            if tensor not in self._described:
                return None
            operator, _, described = self._described[tensor].partition(" ")
            name = described.removeprefix("of ").strip("'")
            known = self._named(name)
            if known is None:
                known = len(self.nodes)
                self.nodes.append(SourceNode(name or tensor, operator))
            self._producers[tensor] = known
        return self._producers[tensor]

    def _named(self, name: str) -> int | None:
        while name:
            if (found := self._producers.get(name, self._numbers.get(name))) is not None:
                return found
            name = name.rpartition("_")[0]
        return None


def _computed(steps: Sequence[Step], named: Sequence[int | None]) -> list[int | None]:
    """The node that each step computes; None for a step that only rearranges the result of another step's node."""
    computed = {
        node for step, node in zip(steps, named, strict=True) if node is not None and step.operator not in _ARRANGING
    }
    return [
        None if step.operator in _ARRANGING and node in computed else node
        for step, node in zip(steps, named, strict=True)
    ]


def _helped(steps: Sequence[Step], own: Sequence[int | None]) -> list[int | None]:
    """The node of each step; if it has none, that of the first step that reads it, or else of one that it reads."""
    helped = list(own)
    first: dict[int, int] = {}
    for number in range(len(steps) - 1, -1, -1):
        if helped[number] is None and number in first:
            helped[number] = helped[first[number]]
        for read in steps[number].reads:
            first[read] = number
    for number, step in enumerate(steps):
        if helped[number] is None:
            helped[number] = next((helped[read] for read in step.reads if helped[read] is not None), None)
    return helped


def _marks(module: tvm.IRModule) -> list[int | None]:
    """The marks of the kernel calls of `main`, in order; see `_is_kernel`."""
    found: list[int | None] = []

    def visit(part: relax.Expr) -> None:
        if isinstance(part, relax.Call) and _is_kernel(part):
            found.append(mark_of(part))

    relax.analysis.post_order_visit(module["main"].body, visit)
    return found


def _is_kernel(call: relax.Call) -> bool:
    """Whether it calls a kernel, directly or by `call_tir`, other than one that packs weights."""
    called = call.args[0] if operator_of(call) == CALL_KERNEL else call.op
    return isinstance(called, tvm.ir.GlobalVar) and not str(called.name_hint).endswith(_PACKING)


def _plain(operator: str) -> str:
    """An operator's name without its namespace and without the number that TVM appends (`conv2d1` is the second)."""
    known = _OPERATOR.match(operator.rpartition(".")[2])
    return known[1] if known else operator


@mutator
class _Numbered(PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self.names: list[str] = []

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        value = self.builder_.normalize(self.visit_expr(binding.value))
        made = type(binding.var)(f"{_NAME}{len(self.names)}", binding.var.ty)
        alias = isinstance(binding.value, relax.Var)
        self.names.append(str((binding.value if alias else binding.var).name))
        self.builder_.emit_normalized(relax.VarBinding(made, value))
        self.set_var_remap(binding.var, made)


@mutator
class _Marked(PyExprMutator):  # type: ignore[misc]
    """Marks calls with numbers, by their spans."""

    def __init__(self, module: tvm.IRModule, numbers: Sequence[int | None]) -> None:
        """`numbers` are those of the kernel calls, in order; None for a call without a mark."""
        super().__init__(module)
        self._source = tvm.ir.SourceName(_KERNEL)
        self._numbers = iter(numbers)

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        number = next(self._numbers) if _is_kernel(call) else None
        if number is None:
            return call
        span = tvm.ir.Span(self._source, number, 0, 0, 0)
        return relax.Call(call.op, call.args, call.attrs, call.ty_args, span)
