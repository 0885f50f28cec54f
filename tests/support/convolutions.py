"""Workloads around a convolution, as the lowering makes them, and what runs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from kintune.errors import BuildError

if TYPE_CHECKING:
    import tvm

__all__ = ["Case", "decided", "extents", "in_onnxruntime", "relative_error", "run", "workload"]


class Case(msgspec.Struct, frozen=True):
    """A convolution of [images, height, width, channels], and what follows it: words out of "bias", "relu", "silu",
    "residual" and "twice" (a second reader).

    `pads` are rows above, columns to the left, rows below, columns to the right.  `before` is what the data is made
    with: "" or "relu".  With `group_axis`, groups have an axis of their own in data and weights, as the lowering gives
    them one.
    """

    height: int = 8
    width: int = 8
    channels: int = 16
    filters: int = 16
    images: int = 1
    kernel: tuple[int, int] = (3, 3)
    stride: int | tuple[int, int] = 1
    dilation: int | tuple[int, int] = 1
    groups: int = 1
    pads: tuple[int, int, int, int] = (1, 1, 1, 1)
    after: tuple[str, ...] = ()
    before: str = ""
    dtype: str = "float32"
    weight: bool = True
    group_axis: bool = False


def workload(case: Case) -> tvm.IRModule:
    """The workload, with its weights marked as such."""
    import tvm
    from tvm import te, topi

    from kintune.compiler.graph.grouped import grouped_convolution

    width, depth = case.filters // case.groups, case.channels // case.groups
    channels = (case.groups, depth) if case.group_axis else (case.channels,)
    filters = (depth, case.groups, width) if case.group_axis else (depth, case.filters)
    data = te.placeholder((case.images, case.height, case.width, *channels), case.dtype, "data")
    weight = te.placeholder((*case.kernel, *filters), case.dtype, "weight")
    operands, read = [data, weight], topi.nn.relu(data) if case.before == "relu" else data
    if case.group_axis:
        convolved = grouped_convolution(read, weight, _both(case.stride), list(case.pads), _both(case.dilation))
        found = topi.reshape(convolved, (*convolved.shape[:3], case.filters))
    elif case.groups > 1:
        found = topi.nn.group_conv2d_nhwc(read, weight, case.stride, case.pads, case.dilation, case.groups)
    else:
        found = topi.nn.conv2d_nhwc(read, weight, case.stride, case.pads, case.dilation)
    first = found
    for word in case.after:
        if word == "bias":
            operands.append(te.placeholder((1, 1, 1, case.filters), case.dtype, "bias"))
            found = topi.add(found, operands[-1])
        elif word == "residual":
            operands.append(te.placeholder(tuple(found.shape), case.dtype, "residual"))
            found = topi.add(found, operands[-1])
        elif word == "relu":
            found = topi.nn.relu(found)
        elif word == "silu":
            found = topi.multiply(found, topi.sigmoid(found))
        elif word == "twice":
            found = topi.add(found, topi.multiply(first, tvm.tirx.const(0.5, case.dtype)))
        elif word == "mean":
            found = topi.sum(found, axis=(1, 2), keepdims=True)
        else:
            raise ValueError(word)
    function = te.create_prim_func([*operands, found], index_dtype_override="int64")  # the type that networks have
    function = function.with_attr("global_symbol", "main")
    marks = [1] if case.weight else []
    function = function.with_attr("layout_free_buffers", marks)
    return tvm.IRModule({"main": function})


def run(
    module: tvm.IRModule,
    target: tvm.target.Target,
    *,
    written: bool = False,
    extremes: Mapping[tuple[int, ...], float] = {},
) -> np.ndarray[Any, Any]:
    """What a module computes of random operands: as it was `written`, or under the compiler's default schedule.

    The data, which are the first operand, have `extremes` in some places.
    """
    import tvm

    from kintune.compiler.space.generator import default_schedule

    random = np.random.default_rng(0)
    arrays = []
    for parameter in module["main"].params:
        shape = tuple(int(extent) for extent in parameter.shape)
        drawn = random.standard_normal(shape).astype(str(parameter.dtype))
        for place, value in extremes.items() if not arrays else ():
            drawn[place] = value
        arrays.append(tvm.runtime.tensor(drawn))
    tvm.compile(module if written else default_schedule(module, target), target)["main"](*arrays)
    return np.asarray(arrays[-1].numpy())


def relative_error(found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> float:
    """The largest difference over the largest value."""
    return float(np.max(np.abs(found - expected)) / max(float(np.max(np.abs(expected))), 1e-30))


def extents(case: Case) -> list[int]:
    """The height and width of the result."""
    stride, dilation = _both(case.stride), _both(case.dilation)
    sizes = (case.height + case.pads[0] + case.pads[2], case.width + case.pads[1] + case.pads[3])
    return [(sizes[axis] - (case.kernel[axis] - 1) * dilation[axis] - 1) // stride[axis] + 1 for axis in (0, 1)]


def in_onnxruntime(case: Case) -> np.ndarray[Any, Any]:
    """What onnxruntime computes of the operands that `run` draws."""
    import onnxruntime
    from onnx import TensorProto, helper

    random = np.random.default_rng(0)
    data = random.standard_normal((case.images, case.height, case.width, case.channels)).astype("float32")
    weight = random.standard_normal((*case.kernel, case.channels // case.groups, case.filters)).astype("float32")
    bias = random.standard_normal((1, 1, 1, case.filters)).astype("float32") if "bias" in case.after else None
    node = helper.make_node(
        "Conv", ["x", "w"], ["y"], strides=_both(case.stride), dilations=_both(case.dilation), pads=list(case.pads),
        group=case.groups,
    )  # fmt: skip
    names = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("x", "w", "y")]
    model = helper.make_model(
        helper.make_graph([node], "one", names[:2], names[2:]), opset_imports=[helper.make_opsetid("", 17)]
    )
    model.ir_version = 9
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    operands = {"x": data.transpose(0, 3, 1, 2), "w": weight.transpose(3, 2, 0, 1)}
    found = np.asarray(session.run(None, operands)[0]).transpose(0, 2, 3, 1)
    found = found if bias is None else found + bias
    return np.maximum(found, 0.0) if "relu" in case.after else found


def decided(program: Any, module: Any, variant: str, draw: Callable[[int], int]) -> Any:
    """What the program writes with decisions that `draw` takes out of so many, the next ones that make a program."""
    axes = program.axes(module, variant)
    while True:
        try:
            return program.write(module, variant, tuple(axis.values[draw(len(axis.values))] for axis in axes))
        except BuildError as error:
            assert "not fit" in str(error)  # noqa: PT017


def _both(value: int | tuple[int, int]) -> list[int]:
    """A number for each axis of an image."""
    return [value, value] if isinstance(value, int) else list(value)
