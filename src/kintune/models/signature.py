"""The inputs and outputs of an imported module, which must all be tensors of fixed shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tvm

    from kintune.core.model import Tensor
from collections.abc import Sequence

import tvm
from tvm import relax

from kintune.core.model import Tensor
from kintune.errors import ModelError
from kintune.models.input_kinds import with_kinds

if TYPE_CHECKING:
    from typing import Any


__all__ = ["signature"]


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
