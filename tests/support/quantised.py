"""Small quantised networks: one convolution or product, written with QuantizeLinear/DequantizeLinear or as integers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from kintune.core.candidate import Candidate, Sketch
from kintune.models.evaluation import open_session
from kintune.search.processor import Processor
from kintune.search.sketch_program import program_of

if TYPE_CHECKING:
    from kintune.compiler.graph.lower import Lowered

__all__ = [
    "Layer",
    "Matrices",
    "Written",
    "chosen_by_rule",
    "lowered",
    "run_lowered",
    "run_onnxruntime",
    "run_untuned",
    "write_layer",
    "write_matrices",
    "written_kernels",
]


class Layer(msgspec.Struct, frozen=True):
    """A convolution of `[1, channels, height, width]`, or, without a kernel, a product of `[height, width, channels]`.
    A kernel of one extent convolves `[1, channels, height]`.

    `form` is "qdq", "qlinear", "integer", "dynamic" or "dynamic_qdq".  `points` are the zero points of data and result,
    `weight_point` that of the weights; with `spread` it differs by filter, where onnxruntime takes that.  With `given`,
    zero points are inputs of the network.  `after` is a word out of "", "relu", "residual", "hard" and "gate", which
    multiplies a larger constant by the result.
    """

    form: str = "qdq"
    channels: int = 8
    filters: int = 16
    height: int = 6
    width: int = 7
    kernel: tuple[int, ...] | None = (3, 3)
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (1, 1, 1, 1)
    groups: int = 1
    signed: bool = False
    signed_weights: bool = True
    points: tuple[int, int] = (0, 0)
    weight_point: int = 0
    spread: bool = False
    given: bool = False
    per_channel: bool = True
    bias: bool = True
    after: str = ""
    seed: int = 0


class Written(msgspec.Struct, frozen=True):
    """A file, what it is fed, and the step of its result (0 where that is of integers)."""

    path: Path
    feeds: dict[str, NDArray[Any]]
    step: float


class Matrices(msgspec.Struct, frozen=True):
    """A product (MatMulInteger) of two inputs of these shapes, signed or not, with zero points: of the second one, one
    for each column where there are several.  With `given`, zero points are inputs, too.  With `constant`, the second
    one is no input.
    """

    left: tuple[int, ...]
    right: tuple[int, ...]
    signed: tuple[bool, bool] = (False, False)
    points: tuple[int, ...] = (0, 0)
    given: bool = False
    constant: bool = False
    seed: int = 0


def write_matrices(product: Matrices, folder: Path) -> Written:
    """Write the network to `product.onnx` in the folder, with drawn inputs."""
    draw, feeds, constants = np.random.default_rng(product.seed), {}, []
    columns = product.points[1:]
    for name, shape, signed, points in (
        ("a", product.left, product.signed[0], product.points[0]),
        (
            "b",
            product.right,
            product.signed[1],
            columns[0] if len(columns) == 1 else np.resize(columns, product.right[-1]),
        ),
    ):
        kind = np.int8 if signed else np.uint8
        limits = np.iinfo(kind)
        values = draw.integers(limits.min, limits.max + 1, shape).astype(kind)
        zero = np.asarray(np.asarray(points) + limits.min, kind)
        if zero.ndim and len(shape) > 2:
            zero = np.broadcast_to(zero, (*shape[:-2], 1, zero.size))
        for tensor, is_given in ((name, not (product.constant and name == "b")), (f"{name}_point", product.given)):
            array = values if tensor == name else zero
            if is_given:
                feeds[tensor] = array
            else:
                constants.append(numpy_helper.from_array(array, tensor))
    node = helper.make_node("MatMulInteger", ["a", "b", "a_point", "b_point"], ["y"])
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(values.dtype), values.shape)
        for name, values in feeds.items()
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.INT32, None)]
    graph = helper.make_graph([node], "product", inputs, outputs, constants)
    path = folder / "product.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    return Written(path, feeds, 0.0)


def write_layer(layer: Layer, folder: Path) -> Written:
    """Write the network to `layer.onnx` in the folder, with drawn weights and inputs."""
    return _Writer(layer).written(folder / "layer.onnx")


class _Writer:
    def __init__(self, layer: Layer) -> None:
        self._layer = layer
        self._draw = np.random.default_rng(layer.seed)
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._feeds: dict[str, NDArray[Any]] = {}
        self._type = np.int8 if layer.signed else np.uint8

    def written(self, path: Path) -> Written:
        layer = self._layer
        shape = (layer.height, layer.width, layer.channels) if layer.kernel is None else self._image()
        terms = layer.channels // layer.groups * int(np.prod(layer.kernel or (1, 1)))
        in_step, out_step = 0.02, 0.02 * 0.01 * 40 * np.sqrt(terms)
        integers = layer.form in ("qlinear", "integer")
        if integers:
            limits = np.iinfo(self._type)
            x = self._draw.integers(limits.min, limits.max + 1, shape).astype(self._type)
        else:
            x = (self._draw.standard_normal(shape) * 1.5).astype(np.float32)
        result, kind = getattr(self, f"_{layer.form}")(in_step, out_step)
        graph = helper.make_graph(
            self._nodes,
            "layer",
            [
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(values.dtype), values.shape)
                for name, values in {"x": x, **self._feeds}.items()
            ],
            [helper.make_tensor_value_info(result, kind, None)],
            self._weights,
        )
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
        step = {"qdq": out_step, "qlinear": 1.0, "integer": 0.0}.get(layer.form, 0.01)
        return Written(path, {"x": x, **self._feeds}, step)

    def _image(self) -> tuple[int, ...]:
        layer = self._layer
        return (1, layer.channels, layer.height, layer.width)[: 2 + len(layer.kernel or ())]

    def _node(self, operator: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        names = [f"{operator}_{len(self._nodes)}_{place}" for place in range(outputs)]
        self._nodes.append(helper.make_node(operator, inputs, names, **attributes))
        return names[0]

    def _constant(self, values: Any, kind: Any) -> str:
        name = f"weight_{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(np.asarray(values, kind), name))
        return name

    def _point(self, values: Any, kind: Any) -> str:
        """The name of a zero point: a constant, or an input of the network."""
        if not self._layer.given:
            return self._constant(values, kind)
        name = f"point_{len(self._feeds)}"
        self._feeds[name] = np.asarray(values, kind)
        return name

    def _filters(self) -> tuple[str, str, str, int]:
        """The names of the weights, their scales and zero points, and the axis of these."""
        layer = self._layer
        kind = np.int8 if layer.signed_weights else np.uint8
        if layer.kernel is None:
            shape: tuple[int, ...] = (layer.channels, layer.filters)
        else:
            shape = (layer.filters, layer.channels // layer.groups, *layer.kernel)
        axis = 1 if layer.kernel is None else 0
        limits = np.iinfo(kind)
        weights = self._draw.integers(limits.min, limits.max + 1, shape)
        count = (layer.filters,) if layer.per_channel else ()
        scales = self._draw.uniform(0.005, 0.015, count)
        points = np.full(count, layer.weight_point)
        if layer.kernel is not None and layer.form in ("integer", "dynamic"):  # onnxruntime takes one of a convolution
            points = np.full((), layer.weight_point)
        elif layer.spread and (layer.form == "qdq" or layer.kernel is None):
            points = (points - limits.min + 37 * np.arange(points.size).reshape(count)) % 256 + limits.min
        return self._constant(weights, kind), self._constant(scales, np.float32), self._point(points, kind), axis

    def _attributes(self) -> dict[str, Any]:
        layer = self._layer
        axes = len(layer.kernel or ())
        pads = (*layer.pads[:2][:axes], *layer.pads[2:][:axes])
        return {
            "strides": layer.strides[:axes],
            "dilations": layer.dilations[:axes],
            "pads": pads,
            "group": layer.groups,
        }

    def _qdq(self, in_step: float, out_step: float) -> tuple[str, int]:
        layer = self._layer
        first = self._constant(in_step, np.float32), self._point(layer.points[0], self._type)
        last = self._constant(out_step, np.float32), self._point(layer.points[1], self._type)
        x = self._node("DequantizeLinear", self._node("QuantizeLinear", "x", *first), *first)
        weights, scales, points, axis = self._filters()
        w = self._node("DequantizeLinear", weights, scales, points, axis=axis)
        if layer.kernel is None:
            y = self._node("MatMul", x, w)
            if layer.bias:
                y = self._node("Add", y, self._constant(self._draw.standard_normal(layer.filters), np.float32))
        else:
            bias = [self._constant(self._draw.standard_normal(layer.filters), np.float32)] if layer.bias else []
            y = self._node("Conv", x, w, *bias, **self._attributes())
        if layer.after == "relu":
            y = self._node("Relu", y)
        elif layer.after == "hard":
            y = self._node("Mul", y, self._node("HardSigmoid", y))
        elif layer.after == "gate":
            larger = self._draw.standard_normal((1, layer.filters, 5, 5)) * 100 * out_step
            y = self._node("Mul", self._node("Sigmoid", y), self._constant(larger, np.float32))
        elif layer.after == "residual":
            again = self._node("DequantizeLinear", self._node("QuantizeLinear", y, *last), *last)
            y = self._node("Relu", self._node("Add", y, again))
        y = self._node("DequantizeLinear", self._node("QuantizeLinear", y, *last), *last)
        return y, TensorProto.FLOAT

    def _qlinear(self, in_step: float, out_step: float) -> tuple[str, int]:
        layer = self._layer
        first = self._constant(in_step, np.float32), self._point(layer.points[0], self._type)
        last = self._constant(out_step, np.float32), self._point(layer.points[1], self._type)
        weights, scales, points, _ = self._filters()
        operands = ["x", *first, weights, scales, points, *last]
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(self._type))
        if layer.kernel is None:
            return self._node("QLinearMatMul", *operands), kind
        bias = [self._constant(self._draw.integers(-5000, 5000, layer.filters), np.int32)] if layer.bias else []
        return self._node("QLinearConv", *operands, *bias, **self._attributes()), kind

    def _integer(self, in_step: float, out_step: float) -> tuple[str, int]:
        layer = self._layer
        weights, _, points, _ = self._filters()
        operands = ["x", weights, self._point(layer.points[0], self._type), points]
        if layer.kernel is None:
            return self._node("MatMulInteger", *operands), TensorProto.INT32
        return self._node("ConvInteger", *operands, **self._attributes()), TensorProto.INT32

    def _dynamic_qdq(self, in_step: float, out_step: float) -> tuple[str, int]:
        x = self._node("DynamicQuantizeLinear", "x", outputs=3)
        x = self._node("DequantizeLinear", x, f"{x[:-1]}1", f"{x[:-1]}2")
        weights, scales, points, axis = self._filters()
        w = self._node("DequantizeLinear", weights, scales, points, axis=axis)
        y = self._node("MatMul", x, w) if self._layer.kernel is None else self._node("Conv", x, w, **self._attributes())
        return y, TensorProto.FLOAT

    def _dynamic(self, in_step: float, out_step: float) -> tuple[str, int]:
        weights, scales, points, _ = self._filters()
        x = self._node("DynamicQuantizeLinear", "x", outputs=3)
        scale, point = (f"{x[:-1]}{place}" for place in (1, 2))
        if self._layer.kernel is None:
            sums = self._node("MatMulInteger", x, weights, point, points)
        else:
            sums = self._node("ConvInteger", x, weights, point, points, **self._attributes())
        real = self._node("Cast", sums, to=TensorProto.FLOAT)
        if self._layer.kernel is not None and self._layer.per_channel:
            scales = self._node("Reshape", scales, self._constant([-1, 1, 1], np.int64))
        return self._node("Mul", real, self._node("Mul", scale, scales)), TensorProto.FLOAT


def run_onnxruntime(written: Written) -> NDArray[Any]:
    """What onnxruntime computes, with nothing rewritten; products of bytes are exact on all CPUs."""
    return np.asarray(open_session(onnx.load(written.path)).run(None, dict(written.feeds))[0])


def chosen_by_rule(
    network: Any, target: Any, program: str, machine: Processor, precisions: frozenset[str] = frozenset()
) -> dict[str, tuple[Sketch, Candidate]]:
    """The first candidate of the program for each workload that has it, by the workload's digest."""
    from kintune.compiler.programs.registry import program_named
    from kintune.compiler.space.sketches import generate_sketches

    found = {}
    for workload in network.workloads:
        for sketch in generate_sketches(workload.digest, workload.module, target, precisions):
            name = program_of(sketch)
            if name.startswith(f"{program}."):
                made, variant = program_named(name)
                decisions = made.rule(workload.module, variant, machine)[0]
                found[workload.digest] = sketch, Candidate(workload.digest, sketch.digest, decisions)
    return found


def lowered(written: Written, cpu: str = "") -> tuple[Lowered, Any]:
    """The lowered network, and its target: this machine, or a CPU of that name."""
    import tvm

    from kintune.compiler.graph.lower import lower
    from kintune.models.importer import load
    from kintune.models.ref import parse_ref
    from kintune.runtime.target import resolve_target

    target = tvm.target.Target(json.loads(resolve_target(f"llvm -mcpu={cpu}" if cpu else "native", 1)))
    return lower(load(parse_ref(str(written.path))).module, target), target


def run_untuned(
    written: Written, choose: Callable[[Lowered, Any], Mapping[str, Any]] | None = None, cpu: str = ""
) -> NDArray[Any]:
    """What the untuned network computes on this machine, compiled for it or for a CPU of that name.

    `choose` gives programs for its workloads, as `assemble` takes them.
    """
    network, target = lowered(written, cpu)
    return run_lowered(network, target, written, {} if choose is None else choose(network, target))


def run_lowered(network: Lowered, target: Any, written: Written, chosen: Mapping[str, Any]) -> NDArray[Any]:
    """What a lowered network computes on this machine, with the programs that are chosen for its workloads."""
    import tvm
    from tvm import relax

    from kintune.compiler.graph.assemble import assemble

    program = assemble(network, dict(chosen), target)
    machine = relax.VirtualMachine(program.executable, tvm.cpu())
    result = machine["main"](*[tvm.runtime.tensor(values) for values in written.feeds.values()], *program.weights)
    return np.asarray((result if isinstance(result, tvm.runtime.Tensor) else result[0]).numpy())


def written_kernels(network: Lowered) -> list[str]:
    """The scripts of the network's kernels."""
    return [str(workload.module.script()) for workload in network.workloads]
