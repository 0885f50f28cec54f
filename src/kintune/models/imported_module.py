"""Completes a module that an importer has made: describes its inputs and outputs, and guards its indices."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import tvm
from tvm import relax

from kintune.core.model import ModelRef, Tensor
from kintune.errors import ModelError
from kintune.models.constants import store_constant
from kintune.models.expressions import static_shape
from kintune.models.index_guard import guard_indices
from kintune.models.input_kinds import with_kinds
from kintune.models.model import ImportedModel
from kintune.models.source_graph import GraphNode

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ImportedModule", "complete_model", "trace"]

_LARGEST_RESULT = 1 << 36  # elements


class ImportedModule(NamedTuple):
    """The result of an importer.

    `module` holds one function `main`, whose weights are constants.  `sources` maps the names of variables of `main` to
    the tensor or node of the user's graph that they hold, or help to compute; `nodes` maps each of these to how
    messages name the node (`Conv 'layer1/conv'`).  `graph` has all nodes of the user's graph.
    """

    module: tvm.IRModule
    sources: dict[str, str]
    nodes: dict[str, str]
    graph: tuple[GraphNode, ...] = ()


def complete_model(
    ref: ModelRef,
    imported: ImportedModule,
    inputs: Sequence[str],
    outputs: Sequence[str],
    *,
    digest: str,
    constants: Mapping[str, NDArray[Any]],
    onnx_path: str | None = None,
    exported_path: str | None = None,
    opset: int = 0,
    positions: Sequence[NDArray[Any]] = (),
) -> ImportedModel:
    """Makes the model that `ref` names of its imported module and the names of its inputs and outputs.

    `constants` are the values of the inputs that became constants; the other arguments are those of `ImportedModel`.

    Raises:
        ModelError: when a shape anywhere in `main` is known only at run time, or an output is no tensor.
    """
    label = str(onnx_path or exported_path)
    described, results = _signature(label, imported.module, inputs, outputs)
    guarded = guard_indices(imported.module, described, imported.sources, imported.nodes)
    return ImportedModel(
        name=ref.name,
        digest=digest,
        module=guarded.module,
        inputs=described,
        outputs=results,
        onnx_path=onnx_path,
        exported_path=exported_path,
        opset=opset,
        sources=guarded.sources,
        nodes=imported.nodes,
        constants={name: store_constant(name, values, typed=True) for name, values in constants.items()},
        checks=guarded.checks,
        graph=imported.graph,
        positions=tuple(positions),
    )


def trace(main: relax.Function, known: Mapping[str, str]) -> dict[str, str]:
    """Maps variables of `main` to the user's tensor or node whose value they hold, or help to compute.

    `known` maps some of the variables.  Each other one belongs to the next variable bound after it that `known` has.
    Names that are bound more than once are left out.
    """
    bound = [str(binding.var.name) for block in main.body.blocks for binding in block.bindings]
    unique = {name for name, count in Counter(bound).items() if count == 1}
    traced = {name: tensor for name, tensor in known.items() if name not in bound or name in unique}
    target = ""
    for name in reversed(bound):
        target = known.get(name, target)
        if target and name in unique:
            traced[name] = target
    return traced


def _signature(
    label: str, module: tvm.IRModule, inputs: Sequence[str], outputs: Sequence[str]
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Inputs and outputs of `module`'s `main`, under the model's own names."""
    main = module["main"]
    _refuse_open_shapes(label, main)
    returned = main.ret_ty
    fields = list(returned.fields) if isinstance(returned, relax.TupleType) else [returned]
    if len(fields) != len(outputs):
        raise ModelError(f"{label}: has {len(outputs)} outputs, but {len(fields)} after import")
    read = tuple(_tensor(label, name, parameter.ty) for name, parameter in zip(inputs, main.params, strict=False))
    return (
        with_kinds(module, read),
        tuple(_tensor(label, name, field) for name, field in zip(outputs, fields, strict=True)),
    )


def _tensor(label: str, name: str, type_: Any) -> Tensor:
    shape = static_shape(type_)
    if shape is None:
        raise ModelError(f"{label}: {name} is not a tensor of fixed shape but {type_}")
    return Tensor(name=name, shape=shape, dtype=str(type_.dtype))


def _refuse_open_shapes(label: str, main: relax.Function) -> None:
    """Refuse shapes that depend on data: code for them can be neither compiled ahead of time nor tuned.

    Results that no memory holds are refused as well: to fold a constant of that size would take all there is.
    """
    open_results: list[str] = []  # collected, since TVM turns an exception raised inside the visit into another type
    vast_results: list[str] = []

    def visit(expression: Any) -> None:
        if isinstance(expression, relax.Call) and isinstance(expression.ty, relax.TensorType | relax.TupleType):
            fields = expression.ty.fields if isinstance(expression.ty, relax.TupleType) else [expression.ty]
            shapes = [static_shape(field) for field in fields if isinstance(field, relax.TensorType)]
            name = getattr(expression.op, "name", "an operator").removeprefix("relax.")
            if None in shapes:
                open_results.append(name)
            vast_results.extend(name for shape in shapes if shape is not None and math.prod(shape) > _LARGEST_RESULT)

    relax.analysis.post_order_visit(main.body, visit)
    if open_results:
        raise ModelError(
            f"{label}: the shape of a result of {open_results[0]} depends on the data, so the model cannot be "
            "compiled; export it with fixed sizes"
        )
    if vast_results:
        raise ModelError(
            f"{label}: a result of {vast_results[0]} is larger than any memory; the model cannot be compiled"
        )
