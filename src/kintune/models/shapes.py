"""Fixes the shapes of a model's inputs: open dimensions must be bound, and given shapes must fit the model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from onnx import GraphProto, ModelProto, TensorProto, TensorShapeProto, ValueInfoProto, helper, shape_inference

from kintune.errors import ModelError, ShapeError
from kintune.models.constants import fit_constant

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from kintune.core.model import Constant

__all__ = [
    "ELEMENT_TYPES",
    "Dimension",
    "bind",
    "contradicting",
    "declared_shape",
    "dimension_names",
    "fit_constants",
    "resolve",
    "unknown_constant",
    "with_constants",
]

Dimension: TypeAlias = "int | str"
"""A size, or the name of an open dimension ("" when it has none)."""

_LARGEST_INPUT = 2**31 - 1  # elements
_MOST_DIMENSIONS = 32  # of what the runtime takes
_SIDE, _STEPS = 224, 64  # extents of an image and of a sequence in the example shapes of messages

ELEMENT_TYPES = {
    TensorProto.FLOAT: "float32",
    TensorProto.DOUBLE: "float64",
    TensorProto.FLOAT16: "float16",
    TensorProto.BFLOAT16: "bfloat16",
    TensorProto.BOOL: "bool",
    TensorProto.INT8: "int8",
    TensorProto.INT16: "int16",
    TensorProto.INT32: "int32",
    TensorProto.INT64: "int64",
    TensorProto.UINT8: "uint8",
    TensorProto.UINT16: "uint16",
    TensorProto.UINT32: "uint32",
    TensorProto.UINT64: "uint64",
    TensorProto.STRING: "string",
}
"""The element types that inputs may have; models with inputs of strings can only run in onnxruntime."""


class _NamedTwice(ShapeError):
    """A name of an open dimension would have two sizes."""


def bind(
    label: str,
    model: ModelProto,
    shapes: Mapping[str, tuple[int, ...]],
    weights: Mapping[str, NDArray[Any]] | None = None,
) -> dict[str, tuple[int, ...]]:
    """Fix all input shapes in `model`, and remove the shapes of inner tensors, which follow from them.

    An open dimension with a name has one size wherever the name occurs, so binding one input may bind others.  Some
    exporters give one name to unrelated dimensions.  So given shapes in which a name has two sizes are accepted if
    ONNX's shape inference finds no error with them; `weights` are those that are not in `model`.

    Returns:
        The shape of every input, by name.

    Raises:
        ShapeError: for an open dimension that is not bound, an unknown input, or a shape that contradicts the model.
        ModelError: for an input that is no tensor, or has an unsupported element type.
    """
    declared = {value.name: declared_shape(label, value) for value in model.graph.input}
    try:
        fixed = resolve(label, declared, shapes)
    except _NamedTwice:
        fixed = resolve(label, declared, shapes, apart=True)
        if not _takes(model, fixed, weights or {}):
            raise
    _fix(model.graph, fixed)
    return fixed


def _fix(graph: GraphProto, shapes: Mapping[str, tuple[int, ...]]) -> None:
    for value in graph.input:
        if value.name in shapes:
            _write(value, shapes[value.name])
    _forget_inner_shapes(graph)


def _takes(model: ModelProto, shapes: Mapping[str, tuple[int, ...]], weights: Mapping[str, NDArray[Any]]) -> bool:
    """Whether shape inference finds nothing wrong with inputs of these shapes."""
    copy = ModelProto()
    copy.CopyFrom(model)
    _fix(copy.graph, shapes)
    try:
        for name, values in weights.items():
            kind = helper.np_dtype_to_tensor_dtype(values.dtype)
            copy.graph.input.append(helper.make_tensor_value_info(name, kind, values.shape))
        shape_inference.infer_shapes(copy, strict_mode=True)
    except Exception:  # shape inference has its own exception types
        return False
    return True


def resolve(
    label: str,
    declared: Mapping[str, tuple[Dimension, ...] | None],
    shapes: Mapping[str, tuple[int, ...]],
    *,
    apart: bool = False,
) -> dict[str, tuple[int, ...]]:
    """Find the shapes of all inputs, as `bind` does, from the shapes that the model declares (None: not even a rank).

    With `apart`, a name may have several sizes in the given shapes; the first of them binds other inputs.

    Raises:
        ShapeError: for an open dimension that is not bound, an unknown input, or a shape that contradicts the model.
    """
    for name in shapes:
        if name not in declared:
            known = ", ".join(declared) or "none"
            raise ShapeError(f"{label}: --shape names {name!r}, but the model's inputs are {known}")
    sizes: dict[str, int] = {}
    for name, shape in shapes.items():
        _unify(label, name, declared[name], shape, sizes, apart=apart)
    fixed: dict[str, tuple[int, ...]] = {}
    for name, dimensions in declared.items():
        found = shapes[name] if name in shapes else _closed(dimensions, sizes)
        if found is None:
            raise ShapeError(f"{label}: {_open_input(name, declared, shapes, sizes)}")
        fixed[name] = found
    for name, shape in fixed.items():
        if len(shape) > _MOST_DIMENSIONS:
            raise ShapeError(f"{label}: input {name} has {len(shape)} dimensions; it may have {_MOST_DIMENSIONS}")
        if math.prod(shape) > _LARGEST_INPUT:
            raise ShapeError(
                f"{label}: input {name} with shape {_text(shape)} is too large; it may have {_LARGEST_INPUT} elements"
            )
    return fixed


def contradicting(label: str, model: ModelProto, shapes: Mapping[str, tuple[int, ...]]) -> str | None:
    """Describes the first input whose given shape contradicts the model, with both shapes; None if there is none.

    Raises:
        ModelError: for an input that is no tensor, or has an unsupported element type.
    """
    sizes: dict[str, int] = {}
    for value in model.graph.input:
        if value.name in shapes:
            declared = declared_shape(label, value)
            try:
                _unify(label, value.name, declared, shapes[value.name], sizes, apart=True)
            except ShapeError:
                return f"its input {value.name} is {_text(declared or ())}, and {_text(shapes[value.name])}"
    return None


def dimension_names(model: ModelProto) -> dict[str, dict[int, str]]:
    """The names that the model has for open axes of its inputs."""
    return {
        value.name: {at: name for at, dim in enumerate(value.type.tensor_type.shape.dim) if (name := _name_of(dim))}
        for value in model.graph.input
        if value.type.WhichOneof("value") == "tensor_type"
    }


def fit_constants(label: str, model: ModelProto, constants: Mapping[str, Constant]) -> dict[str, NDArray[Any]]:
    """The values of `constants` in the types and shapes that the model declares of these inputs.

    Raises:
        ModelError: when a constant is not for an input, or does not fit it.
    """
    inputs = {value.name: value for value in model.graph.input}
    fitted: dict[str, NDArray[Any]] = {}
    for name, constant in constants.items():
        if name not in inputs:
            raise unknown_constant(label, name, inputs)
        declared = declared_shape(label, inputs[name])
        if inputs[name].type.tensor_type.elem_type == TensorProto.STRING:
            raise ModelError(f"{label}: input {name} holds strings, and a constant is made of numbers")
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(inputs[name].type.tensor_type.elem_type))
        fitted[name] = fit_constant(label, name, constant, dtype, declared)
    return fitted


def with_constants(
    label: str, shapes: Mapping[str, tuple[int, ...]], values: Mapping[str, NDArray[Any]]
) -> dict[str, tuple[int, ...]]:
    """The given shapes, and those of the constants.

    Raises:
        ShapeError: when an input has both, and they differ.
    """
    known = dict(shapes)
    for name, array in values.items():
        if known.setdefault(name, array.shape) != array.shape:
            raise ShapeError(
                f"{label}: --shape {name}={_text(known[name])} contradicts its constant, which is {_text(array.shape)}"
            )
    return known


def unknown_constant(label: str, name: str, inputs: Iterable[str]) -> ModelError:
    """The error for a constant whose name is not that of an input."""
    return ModelError(
        f"{label}: a constant is given for {name!r}, but the model's inputs are {', '.join(inputs) or 'none'}"
    )


def declared_shape(label: str, value: ValueInfoProto) -> tuple[Dimension, ...] | None:
    """The shape an input has in the file; None when not even its rank is given.

    Raises:
        ModelError: for an input that is no tensor, or has an unsupported element type.
    """
    if value.type.WhichOneof("value") != "tensor_type":
        kind = (value.type.WhichOneof("value") or "untyped").removesuffix("_type")
        raise ModelError(
            f"{label}: input {value.name} is not a tensor ({kind}); such models cannot be used: "
            "inputs are arrays of numbers or strings"
        )
    tensor = value.type.tensor_type
    if tensor.elem_type not in ELEMENT_TYPES:
        named = (
            TensorProto.DataType.Name(tensor.elem_type) if tensor.elem_type in TensorProto.DataType.values() else "?"
        )
        raise ModelError(f"{label}: input {value.name} holds elements of type {named}, which cannot be imported")
    if not tensor.HasField("shape"):
        return None
    return tuple(_dimension(dim) for dim in tensor.shape.dim)


def _dimension(dim: TensorShapeProto.Dimension) -> Dimension:
    """A dimension as the file declares it; some exporters write -1 for an open dimension."""
    if dim.WhichOneof("value") == "dim_value":
        return int(dim.dim_value) if dim.dim_value >= 0 else ""
    return _name_of(dim)


def _name_of(dim: TensorShapeProto.Dimension) -> str:
    """The name of an open dimension; "?" is none."""
    name = str(dim.dim_param).strip()
    return "" if name == "?" else name


def _unify(
    label: str,
    name: str,
    declared: tuple[Dimension, ...] | None,
    shape: tuple[int, ...],
    sizes: dict[str, int],
    *,
    apart: bool = False,
) -> None:
    """Match a shape given from outside with the declared one, and note the sizes of named dimensions."""
    if declared is None:
        return
    contradiction = f"{label}: --shape {name}={_text(shape)} contradicts the model, where {name} is {_text(declared)}"
    if len(declared) != len(shape):
        raise ShapeError(contradiction)
    for dimension, size in zip(declared, shape, strict=True):
        if isinstance(dimension, int):
            if dimension not in (size, 0):  # some exporters write 0 for a dimension that is open
                raise ShapeError(contradiction)
        elif dimension and sizes.setdefault(dimension, size) != size and not apart:
            raise _NamedTwice(f"{contradiction}: dimension {dimension} was already bound to {sizes[dimension]}")


def _closed(declared: tuple[Dimension, ...] | None, sizes: Mapping[str, int]) -> tuple[int, ...] | None:
    """An input's shape; None where a dimension is not known."""
    if declared is None:
        return None
    known = _known(declared, sizes)
    found = tuple(dim for dim in known if isinstance(dim, int))
    return found if len(found) == len(known) else None


def _known(declared: tuple[Dimension, ...], sizes: Mapping[str, int]) -> tuple[Dimension, ...]:
    return tuple(dim if isinstance(dim, int) else sizes.get(dim, dim) for dim in declared)


def _open_input(
    name: str,
    declared: Mapping[str, tuple[Dimension, ...] | None],
    shapes: Mapping[str, tuple[int, ...]],
    sizes: Mapping[str, int],
) -> str:
    """What to say of `name`, the first input without a known shape, with the options to add for it and all others."""
    options = " ".join(_options(declared, shapes, sizes))
    about = declared[name]
    if about is None:
        return f"input {name} has no shape in the file; add {options}"
    known = _known(about, sizes)
    named = ", ".join(f"{at} ({dim})" if dim else str(at) for at, dim in enumerate(known) if not isinstance(dim, int))
    return (
        f"input {name} is {_text(known)}, of unknown size in dimension {named}; add {options} with the sizes you need"
    )


def _options(
    declared: Mapping[str, tuple[Dimension, ...] | None],
    shapes: Mapping[str, tuple[int, ...]],
    sizes: Mapping[str, int],
) -> Iterator[str]:
    """An option for each input whose shape does not follow from those before it; examples where there is a rank."""
    found = dict(sizes)
    for name, dimensions in declared.items():
        if name in shapes or _closed(dimensions, found) is not None:
            continue
        if dimensions is None:
            yield f"--shape {name}=DIMxDIMx..."
            continue
        example = _example(_known(dimensions, found))
        found.update({dim: size for dim, size in zip(dimensions, example, strict=True) if isinstance(dim, str) and dim})
        yield f"--shape {name}={_text(example)}"


def _example(known: tuple[Dimension, ...]) -> tuple[int, ...]:
    """A shape that a user may begin with: one image of usual size, or one short sequence."""
    image = len(known) == 4 and known[1] in (1, 3)
    return tuple(
        dim if isinstance(dim, int) else 1 if at == 0 else _SIDE if image else _STEPS for at, dim in enumerate(known)
    )


def _write(value: ValueInfoProto, shape: tuple[int, ...]) -> None:
    value.type.tensor_type.shape.Clear()
    for size in shape:
        value.type.tensor_type.shape.dim.add(dim_value=size)


def _forget_inner_shapes(graph: GraphProto) -> None:
    """Remove the shapes of inner tensors, and those of outputs with open dimensions: they may depend on bound ones."""
    del graph.value_info[:]
    for output in graph.output:
        if output.type.WhichOneof("value") == "tensor_type" and any(
            dim.dim_value <= 0 for dim in output.type.tensor_type.shape.dim
        ):
            output.type.tensor_type.ClearField("shape")


def _text(shape: tuple[Dimension, ...]) -> str:
    return "x".join(str(dim) if dim != "" else "?" for dim in shape) or "a scalar"
