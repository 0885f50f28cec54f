"""Converts a prepared program to one Relax function, node by node."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.export.graph_signature import InputKind, OutputKind, TensorArgument
from tvm import relax

from kintune.core.kernel_call import SourceNode
from kintune.errors import ModelError, UnsupportedOperators, cause_line
from kintune.models.expressions import shape_of
from kintune.models.imported_module import ImportedModule, trace
from kintune.models.source_graph import GraphNode
from kintune.models.torch_converters import CONVERTERS
from kintune.models.torch_converters.complex_numbers import COMPLEX_CONVERTERS, Complex
from kintune.models.torch_converters.tensors import MOVES
from kintune.models.torch_converters.translation import NotConvertible, TranslatedNode, Translation, constant

__all__ = ["describe", "translate"]

_LARGEST_FOLDED = 1 << 24  # bytes of a folded constant; it may always have twice those that it is computed from
_RANDOM = ("rand", "randn", "randint", "randperm", "bernoulli", "multinomial", "normal", "uniform", "exponential")
_CHECKS = ("_assert", "sym_constrain_range", "_guards_fn", "_linalg_check_errors")
_SHAPE_ONLY = ("full_like", "zeros_like", "ones_like", "empty_like", "new_zeros", "new_ones", "new_full", "new_empty")


def describe(node: torch.fx.Node) -> str:
    """The text that names a node in messages: its operator, and the user's module, the user's line, or its name."""
    name = _operator(node)
    if path := _module(node):
        return f"aten.{name} '{path}'"
    trace = [line.strip() for line in (node.meta.get("stack_trace") or "").splitlines() if line.strip()]
    return f"aten.{name} in {trace[-1][:120]!r}" if trace else f"aten.{name} '{node.name}'"


def translate(
    label: str, program: torch.export.ExportedProgram, constants: Mapping[str, NDArray[Any]]
) -> ImportedModule:
    """Import a prepared program; inputs that have values in `constants` do not become parameters.

    Raises:
        UnsupportedOperators: listing all operators that have no converter.
        ModelError: naming a node, by the user's module or line, whose arguments are not supported or whose result has a
            shape that depends on data.
    """
    return _Program(label, program, constants).translate()


def _graph(nodes: list[torch.fx.Node]) -> tuple[GraphNode, ...]:
    """The nodes that compute something; each is named after the module that it belongs to, or else by its own name."""
    return tuple(
        GraphNode(
            SourceNode(_module(node) or node.name, _operator(node).partition(".")[0]),
            tuple(given.name for given in node.all_input_nodes),
            (node.name,),
        )
        for node in nodes
        if node.op == "call_function" and not _is_check(node)
    )


def _module(node: torch.fx.Node) -> str:
    """The path of the innermost module that the node belongs to; "" for the model itself."""
    stack = node.meta.get("nn_module_stack") or {}
    return next((str(entry[0]) for entry in reversed(list(stack.values())) if entry[0]), "")


def _operator(node: torch.fx.Node) -> str:
    target = node.target
    return target if isinstance(target, str) else str(getattr(target, "__name__", target))


class _Program:
    def __init__(
        self, label: str, program: torch.export.ExportedProgram, constants: Mapping[str, NDArray[Any]]
    ) -> None:
        self.label = label
        self.constants = constants
        self.program = program
        self.builder = relax.BlockBuilder()
        self.t = Translation(self.builder)
        self.values: dict[torch.fx.Node, Any] = {}
        self.materialised: dict[torch.fx.Node, Any] = {}

    def translate(self) -> ImportedModule:
        nodes = list(self.program.graph.nodes)
        parameters = self._bind_inputs(nodes)
        self._fold(nodes)
        self._refuse_missing(nodes)
        described: dict[str, str] = {}
        with self.builder.function("main", parameters):
            with self.builder.dataflow():
                for node in nodes:
                    if node.op == "call_function" and node not in self.values and not _is_check(node):
                        described[node.name] = describe(node)
                        self.values[node] = self._convert(node)
                outputs = self.builder.emit_output(self._outputs(nodes[-1]))
            self.builder.emit_func_output(outputs)
        module = self.builder.get()
        module["main"] = module["main"].with_attr("num_input", len(parameters))
        module = relax.transform.DeadCodeElimination()(module)
        return ImportedModule(module, trace(module["main"], self.t.sources), described, _graph(nodes))

    def _bind_inputs(self, nodes: list[torch.fx.Node]) -> list[Any]:
        parameters: list[Any] = []
        placeholders = {node.name: node for node in nodes if node.op == "placeholder"}
        for spec in self.program.graph_signature.input_specs:
            node = placeholders[spec.arg.name]
            if spec.kind == InputKind.TOKEN:  # orders side effects; operators that have some are refused by name
                self.values[node] = None
                continue
            if spec.kind == InputKind.USER_INPUT:
                if not isinstance(spec.arg, TensorArgument):
                    self.values[node] = getattr(spec.arg, "value", None)
                    continue
                result = _result(node.meta["val"])
                if node.meta["val"].is_complex():
                    raise ModelError(
                        f"{self.label}: input {node.name} is complex; take real and imaginary parts as an input, and "
                        "torch.view_as_complex of it"
                    )
                if node.name in self.constants:
                    self.values[node] = _tensor(self.constants[node.name], node.meta["val"].dtype)
                    continue
                self.values[node] = relax.Var(node.name, relax.TensorType(list(result.shape), result.dtype))
                parameters.append(self.values[node])
            elif spec.target in self.program.state_dict:
                self.values[node] = self.program.state_dict[spec.target].detach()
            elif spec.target in self.program.constants and isinstance(
                self.program.constants[spec.target], torch.Tensor
            ):
                self.values[node] = self.program.constants[spec.target].detach()
            else:
                raise ModelError(f"{self.label}: {spec.arg.name} is neither a tensor nor a number")
        return parameters

    def _fold(self, nodes: list[torch.fx.Node]) -> None:
        """Evaluate nodes that depend on no input in PyTorch, unless their results are random or too large."""
        with torch.no_grad():
            for node in nodes:
                if node.op == "get_attr":
                    value = getattr(self.program.graph_module, str(node.target), None)
                    if isinstance(value, torch.Tensor):
                        self.values[node] = value
                if node.op != "call_function" or isinstance(node.target, torch._ops.HigherOrderOperator):
                    continue
                packet = _operator(node).split(".")[0]
                if packet in _SHAPE_ONLY or packet in ("full", "scalar_tensor"):
                    self._fold_filled(node)
                elif not _is_check(node) and not packet.removesuffix("_like").startswith(_RANDOM):
                    self._fold_one(node)

    def _fold_filled(self, node: torch.fx.Node) -> None:
        name, value = _operator(node).split(".")[0], node.meta["val"]
        fill: Any = 1 if "ones" in name else 0
        if name in ("full", "full_like"):
            fill = node.args[1]
        elif name == "new_full":
            fill = node.args[2]
        elif name == "scalar_tensor":
            fill = node.args[0]
        if isinstance(fill, torch.fx.Node):
            fill = self.values.get(fill, fill)
        if isinstance(fill, int | float | bool) and _settled(value):
            self.values[node] = torch.full((), fill, dtype=value.dtype).expand(tuple(value.shape))

    def _fold_one(self, node: torch.fx.Node) -> None:
        if not all(self._is_constant(argument) for argument in node.all_input_nodes):
            return
        result = node.meta.get("val")
        sizes = [value.numel() * value.element_size() for value in pytree_tensors(result)]
        given = sum(
            value.numel() * value.element_size()
            for argument in node.all_input_nodes
            for value in pytree_tensors(self.values[argument])
        )
        if sum(sizes) > max(_LARGEST_FOLDED, 2 * given) or not all(map(_settled, pytree_tensors(result))):
            return
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda argument: self.values[argument])
        assert callable(node.target)
        self.values[node] = node.target(*args, **kwargs)

    def _is_constant(self, node: torch.fx.Node) -> bool:
        return node in self.values and not isinstance(self.values[node], relax.Expr)

    def _refuse_missing(self, nodes: list[torch.fx.Node]) -> None:
        missing: Counter[str] = Counter()
        for node in nodes:
            if node.op != "call_function" or node in self.values or _is_check(node) or node.target is operator.getitem:
                continue
            name = _operator(node)
            values = pytree_tensors(node.meta.get("val"))
            if not all(map(_settled, values)):
                raise ModelError(
                    f"{self.label}: the shape of the result of {describe(node)} depends on the data, so the model "
                    "cannot be compiled; export it with fixed sizes"
                )
            if _on_complex_numbers(node):
                if name in COMPLEX_CONVERTERS:
                    continue
                name = f"{name} on complex numbers"
            elif name in CONVERTERS:
                continue
            missing[name] += 1
        if missing:
            raise UnsupportedOperators(self.label, dict(missing))

    def _convert(self, node: torch.fx.Node) -> Any:
        value = node.meta.get("val")
        t = self.t
        t.name = node.name
        if isinstance(value, torch.Tensor):
            t.result, t.results = _result(value), ()
        elif isinstance(value, list | tuple):
            t.results = tuple(_result(part) if isinstance(part, torch.Tensor) else None for part in value)
        t.first = node.all_input_nodes[0].meta.get("val") if node.all_input_nodes else None
        t.used = frozenset(int(user.args[1]) for user in node.users if user.target is operator.getitem)
        try:
            if node.target is operator.getitem:
                source = self.values[node.args[0]]
                result = source[node.args[1]]
                if result is None and node.users:
                    raise NotConvertible(f"result {node.args[1]} of {_operator(node.args[0])}")
            elif any(0 in part.shape for part in pytree_tensors(value)) and isinstance(value, torch.Tensor):
                result = Complex(t.nothing(), t.nothing()) if value.is_complex() else t.nothing()
            elif _on_complex_numbers(node):
                result = COMPLEX_CONVERTERS[_operator(node)](t, self._arguments(node))
            else:
                result = CONVERTERS[_operator(node)](t, self._arguments(node))
                if _operator(node) in MOVES:
                    t.shortened.moved(self._expression(node.all_input_nodes[0]), result)
            return self._checked(node, result)
        except ModelError:
            raise
        except NotConvertible as error:
            raise ModelError(f"{self.label}: {describe(node)} ({node.name}) cannot be imported: {error}") from error
        except Exception as error:  # TVM's operators raise exceptions of many types
            raise ModelError(
                f"{self.label}: {describe(node)} ({node.name}) cannot be imported: {cause_line(error)}"
            ) from error

    def _checked(self, node: torch.fx.Node, result: Any) -> Any:
        """`result`, cast to the type that PyTorch states; raises `NotConvertible` when its shape is another one."""
        if isinstance(result, Complex):
            return Complex(*(self._checked(node, part) for part in result))
        if isinstance(node.meta.get("val"), torch.Tensor) and isinstance(result, relax.Expr):
            stated = self.t.result
            if shape_of(result) != stated.shape:
                raise NotConvertible(f"its result has shape {shape_of(result)} where PyTorch says {stated.shape}")
            return self.t.cast(result, stated.dtype)
        return result

    def _arguments(self, node: torch.fx.Node) -> SimpleNamespace:
        """The node's arguments by the names of the operator's schema, defaults filled in."""
        schema = node.target._schema
        given: dict[str, Any] = {}
        for i, argument in enumerate(schema.arguments):
            if i < len(node.args):
                given[argument.name] = node.args[i]
            elif argument.name in node.kwargs:
                given[argument.name] = node.kwargs[argument.name]
            else:
                given[argument.name] = argument.default_value
        return SimpleNamespace(
            **{name: torch.fx.node.map_arg(value, self._expression) for name, value in given.items()}
        )

    def _expression(self, node: torch.fx.Node) -> Any:
        """A node's value for converters, with PyTorch's tensors as Relax constants."""
        value = self.values[node]
        if isinstance(value, torch.Tensor):
            if node not in self.materialised:
                parts = (value.real, value.imag) if value.is_complex() else (value,)
                constants = [self._constant(part) for part in parts]
                self.materialised[node] = Complex(*constants) if value.is_complex() else constants[0]
            return self.materialised[node]
        return value

    def _constant(self, value: torch.Tensor) -> Any:
        if value.numel() > 4096 and all(stride == 0 for stride in value.stride()):
            return self.t.expand(constant(value.flatten()[:1].reshape(())), tuple(value.shape))
        return constant(value)

    def _outputs(self, output: torch.fx.Node) -> Any:
        values: list[Any] = []
        for spec, value in zip(self.program.graph_signature.output_specs, output.args[0], strict=True):
            if spec.kind == OutputKind.USER_OUTPUT and isinstance(spec.arg, TensorArgument):
                self.t.name = "output"
                values.append(self._expression(value))
                if isinstance(values[-1], Complex):
                    raise ModelError(f"{self.label}: returns complex numbers; return torch.view_as_real of them")
        if not values:
            raise ModelError(f"{self.label}: returns no tensor")
        return values[0] if len(values) == 1 else relax.Tuple(values)


def _tensor(array: NDArray[Any], dtype: torch.dtype) -> torch.Tensor:
    values = array.astype("float32") if dtype == torch.bfloat16 else array
    return torch.from_numpy(np.array(values)).to(dtype)


def _is_check(node: torch.fx.Node) -> bool:
    """Whether a node only checks something, is the token of such a check, by which it is ordered, or is not used."""
    made: Any = node.args[0] if node.target is operator.getitem else node
    name = _operator(made)
    if name == "with_effects":
        name = str(getattr(made.args[1], "__name__", ""))
    return name.startswith(_CHECKS) or not node.users


def _result(value: torch.Tensor) -> TranslatedNode:
    """What is known of a result; of a complex one, what is known of its real part."""
    dtype = value.dtype.to_real() if value.is_complex() else value.dtype
    return TranslatedNode(tuple(int(size) for size in value.shape), str(dtype).removeprefix("torch."))


def _on_complex_numbers(node: torch.fx.Node) -> bool:
    """Whether a node reads or makes complex numbers."""
    values = (node.meta.get("val"), *(given.meta.get("val") for given in node.all_input_nodes))
    return any(tensor.is_complex() for value in values for tensor in pytree_tensors(value))


def _settled(value: torch.Tensor) -> bool:
    """Whether all sizes of a tensor are numbers, not symbols."""
    return all(isinstance(size, int) for size in value.shape)


def pytree_tensors(value: Any) -> list[torch.Tensor]:
    """The tensors in a value, which may be a tensor or a nested tuple."""
    return [leaf for leaf in torch.utils._pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]
