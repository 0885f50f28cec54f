"""A model, imported: what the rest of Kintune works on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tvm

    from kintune.core.payloads import Constant, IndexCheck, Tensor
from collections.abc import Sequence

import tvm
from tvm import relax

from kintune.core.payloads import Tensor
from kintune.errors import ModelError
from kintune.models.input_kinds import with_kinds

if TYPE_CHECKING:
    from typing import Any

__all__ = ["ImportedModel", "signature"]


@dataclass(frozen=True)
class ImportedModel:
    """An imported model.

    `module` holds one Relax function `main`, whose parameters are `inputs` in order and whose weights are constants in
    its body, so that lowering may fold them first and turn what is left into parameters afterwards; its attribute
    `num_input` is the number of inputs.  It returns one tensor when there is one output and no computed index to check,
    else a tuple: the outputs, and then the indices that `checks` are about.

    `inputs` and `outputs` have the model's own names and fixed shapes.  `digest` is the digest of the model's content
    (graph, weights and shapes), the same on every machine.  `onnx_path` is the file to run for comparison, None when
    the model came from PyTorch; `opset` is its operator set, or 0.  `constants` has the inputs of that file which have
    become constants here, in its own types and shapes.

    `sources` leads from the names of variables in `main` to the ONNX tensor that they hold or help to compute, and
    `nodes` from there to the user's node, as messages name it (`Conv 'layer1/conv'`); both are empty where unknown.
    """

    name: str
    digest: str
    module: tvm.IRModule
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    onnx_path: str | None = None
    exported_path: str | None = None
    opset: int = 0
    sources: Mapping[str, str] = field(default_factory=dict)
    nodes: Mapping[str, str] = field(default_factory=dict)
    constants: dict[str, Constant] = field(default_factory=dict)
    checks: tuple[IndexCheck, ...] = ()


def signature(
    label: str, module: tvm.IRModule, inputs: Sequence[str], outputs: Sequence[str]
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Inputs and outputs of `module`'s `main`, under the model's own names.

    Raises:
        ModelError: when a shape anywhere in `main` is known only at run time, or an output is no tensor.
    """
    main = module["main"]
    _refuse_open_shapes(label, main)
    returned = main.ret_ty
    fields = list(returned.fields) if isinstance(returned, relax.TupleType) else [returned]
    if len(fields) != len(outputs):
        raise ModelError(f"{label}: has {len(outputs)} outputs, but {len(fields)} after import")
    read = tuple(_tensor(label, name, parameter.ty) for name, parameter in zip(inputs, main.params, strict=True))
    return (
        with_kinds(module, read),
        tuple(_tensor(label, name, field) for name, field in zip(outputs, fields, strict=True)),
    )


def _tensor(label: str, name: str, type_: Any) -> Tensor:
    shape = _fixed_shape(type_)
    if shape is None:
        raise ModelError(f"{label}: {name} is not a tensor of fixed shape but {type_}")
    return Tensor(name=name, shape=shape, dtype=str(type_.dtype))


def _fixed_shape(type_: Any) -> tuple[int, ...] | None:
    """The sizes of a tensor's type, or None when it is no tensor or leaves a size open."""
    if not isinstance(type_, relax.TensorType) or not isinstance(type_.shape, relax.ShapeExpr):
        return None
    sizes = type_.shape.values
    if not all(isinstance(size, tvm.tirx.IntImm) for size in sizes):
        return None
    return tuple(int(size) for size in sizes)


def _refuse_open_shapes(label: str, main: relax.Function) -> None:
    """Refuse shapes that depend on data: nothing that computes on them can be compiled ahead or tuned."""
    open_results: list[str] = []  # collected, since an error raised inside the visit would arrive as another

    def visit(expression: Any) -> None:
        if isinstance(expression, relax.Call) and isinstance(expression.ty, relax.TensorType | relax.TupleType):
            fields = expression.ty.fields if isinstance(expression.ty, relax.TupleType) else [expression.ty]
            if any(isinstance(field, relax.TensorType) and _fixed_shape(field) is None for field in fields):
                open_results.append(getattr(expression.op, "name", "an operator").removeprefix("relax."))

    relax.analysis.post_order_visit(main.body, visit)
    if open_results:
        raise ModelError(
            f"{label}: the shape of a result of {open_results[0]} depends on the data, so the model cannot be "
            "compiled; export it with fixed sizes"
        )
