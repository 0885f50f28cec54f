"""Runs onnxruntime's quantiser on one model: calibrates its tensors once, then quantises any set of its layers.

A layer is a convolution or a product of matrices with constant weights.  Its weights become signed bytes with a scale
for each channel, its input unsigned bytes with one scale; its output stays fp32 until the next layer reads it.  So
whether a layer is quantised does not depend on its neighbours.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, TypeProto

from kintune.errors import ModelError, cause_line
from kintune.models.onnx_nodes import DEFAULT_DOMAINS, nested_tensors, nodes
from kintune.models.quantisation.layer_choice import Layer
from kintune.models.quiet import quiet

__all__ = ["Quantiser", "SetsReader", "check_unquantised", "open_on", "prepared_model", "run"]

Feeds = Mapping[str, Any]

_PRODUCTS = ("Conv", "Gemm", "MatMul")
_QUANTISED = frozenset(
    {
        *("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul", "ConvInteger"),
        *("MatMulInteger", "MatMulIntegerToFloat", "MatMulNBits", "QAttention", "QGemm", "QLinearAdd"),
        *("DynamicQuantizeMatMul", "DynamicQuantizeLSTM"),
    }
)
_OLDEST_OPSET = 13  # the first that has a scale for each channel
_MOST_BYTES = 1_900_000_000  # a protobuf message ends at 2 GiB

# Assumptions by which the time that a layer saves is estimated:
_FLOPS_A_US = 1e5  # fp32 operations in a microsecond
_SAVED_SHARE = 0.75  # the share of the time of fp32 products that products of bytes save
_BYTES_A_US = 1e4  # bytes read from memory in a microsecond
_SAVED_BYTES = 3  # of the four bytes of an fp32 value


class Quantiser:
    """One model with the ranges of its tensors.

    `plain` is the prepared fp32 model, in which each node has a name.  `layers` are those that can be quantised.
    """

    def __init__(self, path: Path, sets: Iterable[Feeds], first: Feeds, directory: Path, threads: int) -> None:
        """Prepare the ONNX model at `path`, and run it on all `sets` of inputs to find the ranges of its tensors.

        `first` is one of the sets: a run on it shows the shapes of tensors.  Files are written to `directory`.

        Raises:
            ModelError: the model is quantised already, has no layers to quantise, is too large, or the quantiser fails.
        """
        self._label = path.name
        try:
            self.plain, prepared = prepared_model(path, directory)
            self._names = _layers(self.plain)
            if not self._names:
                raise ModelError(f"{path}: has no convolutions or products with constant fp32 weights to quantise")
            self.layers = _estimated(self.plain, self._names, first, threads)
            self._ranges = _ranges(prepared, sets, directory)
        except ModelError:
            raise
        except Exception as error:  # onnxruntime has its own exception types
            raise ModelError(f"{path}: cannot be quantised: {cause_line(error)}") from error

    def quantised(self, names: Collection[str]) -> ModelProto:
        """Return the model with these layers, at least one, quantised.

        Raises:
            ModelError: the quantiser fails.
        """
        from onnxruntime.quantization import QDQQuantizer, QuantType

        model = ModelProto()
        model.CopyFrom(self.plain)
        try:
            with quiet():
                quantizer = QDQQuantizer(
                    model,
                    per_channel=True,
                    reduce_range=False,
                    weight_qType=QuantType.QInt8,
                    activation_qType=QuantType.QUInt8,
                    tensors_range=self._ranges,
                    nodes_to_quantize=sorted(names),
                    nodes_to_exclude=[],
                    op_types_to_quantize=list(_PRODUCTS),
                    extra_options={"OpTypesToExcludeOutputQuantization": list(_PRODUCTS)},
                )
                quantizer.quantize_model()
        except Exception as error:  # the quantiser raises exceptions of many types
            raise ModelError(f"{self._label}: cannot be quantised: {cause_line(error)}") from error
        result: ModelProto = quantizer.model.model
        return result


def check_unquantised(path: Path) -> None:
    """Check that the ONNX model at `path` is not quantised yet, and not too large to be.

    Raises:
        ModelError: when it is either, or cannot be read.
    """
    try:
        model = onnx.load(path, load_external_data=False)
    except Exception as error:  # not an ONNX file, or a damaged one
        raise ModelError(f"{path}: is no ONNX file that can be quantised: {cause_line(error)}") from error
    found = Counter(node.op_type for node in nodes(model) if node.op_type in _QUANTISED)
    if found:
        listed = ", ".join(f"{name} x{count}" for name, count in sorted(found.items()))
        raise ModelError(
            f"{path}: is quantised already ({listed}) and needs no calibration: leave --precision int8 and "
            "--calibrate out"
        )
    sizes = [path.stat().st_size]
    for tensor in model.graph.initializer:
        sizes += [int(entry.value) for entry in tensor.external_data if entry.key == "length"]
    if sum(sizes) > _MOST_BYTES:
        raise ModelError(
            f"{path}: its weights take {sum(sizes) / 1e9:.1f} GB, and up to {_MOST_BYTES / 1e9:.1f} GB are quantised; "
            "leave --precision int8 and --calibrate out"
        )


def open_on(model: ModelProto | Path, threads: int, *, exact: bool = False) -> Any:
    """A session of onnxruntime on `threads` threads; with `exact`, only basic optimisations, and no fusion of Q/DQ."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")  # without VNNI, products of bytes would saturate
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    if exact:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.add_session_config_entry("session.disable_quant_qdq", "1")
    source = str(model) if isinstance(model, Path) else model.SerializeToString()
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def run(session: Any, feeds: Feeds, outputs: Sequence[str] | None = None) -> list[Any]:
    """Run a session and return its outputs; feeds that are not inputs of the session are ignored."""
    known = {port.name for port in session.get_inputs()}
    results: list[Any] = session.run(outputs, {name: value for name, value in feeds.items() if name in known})
    return results


def prepared_model(path: Path, directory: Path) -> tuple[ModelProto, Path]:
    """Returns the model with batch norms folded, shapes inferred and all nodes named, and the file it is saved in."""
    from onnxruntime.quantization import quant_pre_process

    source, prepared = path, directory / "prepared.onnx"
    model = onnx.load(path, load_external_data=False)
    is_old = _opset(model) < _OLDEST_OPSET
    if is_old or any(tensor.data_location == TensorProto.EXTERNAL for tensor in _tensors(model)):
        # onnxruntime's tool copies the file, and would look for its weights beside the copy.
        source, model = directory / "converted.onnx", onnx.load(path)
        onnx.save(onnx.version_converter.convert_version(model, _OLDEST_OPSET) if is_old else model, source)
    with quiet():
        quant_pre_process(str(source), str(prepared), skip_symbolic_shape=True)
    model = onnx.load(prepared)
    taken = {node.name for node in model.graph.node}
    seen: set[str] = set()
    for number, node in enumerate(model.graph.node):
        if not node.name or node.name in seen:
            node.name = next(name for name in _numbered(f"{node.op_type} {number}") if name not in taken)
            taken.add(node.name)
        seen.add(node.name)
    _flatten_biases(model)
    onnx.save(model, prepared)
    return model, prepared


def _flatten_biases(model: ModelProto) -> None:
    """Give biases of a shape (1, outputs), which only `Gemm` reads, the shape (outputs).

    `Gemm` computes the same with both.  onnxruntime's quantiser fails on the first, which its own fusion makes.
    """
    elsewhere = {name for node in model.graph.node for name in node.input if node.op_type != "Gemm"}
    biases = {node.input[2] for node in model.graph.node if node.op_type == "Gemm" and len(node.input) > 2} - elsewhere
    for tensor in model.graph.initializer:
        if tensor.name in biases and len(tensor.dims) == 2 and tensor.dims[0] == 1:
            del tensor.dims[0]


def _tensors(model: ModelProto) -> Iterator[TensorProto]:
    yield from model.graph.initializer
    yield from nested_tensors(model)


def _numbered(name: str) -> Iterator[str]:
    yield name
    number = 2
    while True:
        yield f"{name}.{number}"
        number += 1


def _opset(model: ModelProto) -> int:
    return next((entry.version for entry in model.opset_import if entry.domain in DEFAULT_DOMAINS), 0)


def _layers(model: ModelProto) -> dict[str, NodeProto]:
    """The nodes that may be quantised, by name."""
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    found = {}
    for node in model.graph.node:
        if node.op_type not in _PRODUCTS or node.domain not in DEFAULT_DOMAINS or node.input[0] in weights:
            continue
        weight = weights.get(node.input[1])
        if weight is None or weight.data_type != TensorProto.FLOAT or len(weight.dims) not in _ranks(node):
            continue
        found[node.name] = node
    return found


def _ranks(node: NodeProto) -> tuple[int, ...]:
    """The ranks that the weights of a product may have; none for a Gemm that also scales, or transposes its input."""
    if node.op_type == "Conv":
        return (3, 4)
    values = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
    plain = not values.get("transA") and values.get("alpha", 1.0) == 1.0 and values.get("beta", 1.0) == 1.0
    return (2,) if plain else ()


def _estimated(model: ModelProto, layers: Mapping[str, NodeProto], feeds: Feeds, threads: int) -> tuple[Layer, ...]:
    """The layers with the time that each saves, estimated from the shapes in a run."""
    wide = ModelProto()
    wide.CopyFrom(model)
    given = {port.name for port in (*wide.graph.input, *wide.graph.output)}
    names = [name for node in layers.values() for name in (node.input[0], node.output[0])]
    for name in dict.fromkeys(names):
        if name not in given:
            wide.graph.output.append(onnx.helper.make_value_info(name, TypeProto()))
    session = open_on(wide, threads, exact=True)
    wanted = [name for name in dict.fromkeys(names) if name not in feeds]
    shapes = {name: np.shape(value) for name, value in zip(wanted, run(session, feeds, wanted), strict=True)}
    shapes.update({name: np.shape(value) for name, value in feeds.items()})
    weights = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    return tuple(
        Layer(name, _saved_us(node, shapes[node.input[0]], shapes[node.output[0]], weights[node.input[1]]))
        for name, node in layers.items()
    )


def _saved_us(node: NodeProto, read: Sequence[int], written: Sequence[int], weight: Sequence[int]) -> float:
    """The microseconds that a layer is estimated to save: arithmetic, and bytes of its input and its weights.

    A grouped convolution only saves bytes.
    """
    saved = _SAVED_BYTES * (math.prod(read) + math.prod(weight)) / _BYTES_A_US
    grouped = any(attribute.name == "group" and attribute.i > 1 for attribute in node.attribute)
    if grouped:
        return saved
    summed = math.prod(weight[1:]) if node.op_type == "Conv" else read[-1]
    return saved + _SAVED_SHARE * 2.0 * math.prod(written) * summed / _FLOPS_A_US


class SetsReader:
    """Returns sets of inputs one after another, then None, by the interface of onnxruntime's calibrator.

    `known` are the names of the inputs that the model has.
    """

    def __init__(self, sets: Iterable[Feeds], known: Collection[str]) -> None:
        self._sets = iter(sets)
        self._known = frozenset(known)

    def get_next(self) -> dict[str, Any] | None:
        """The next set, of those inputs that the model has; None after the last."""
        feeds = next(self._sets, None)
        return None if feeds is None else {name: value for name, value in feeds.items() if name in self._known}


def _ranges(prepared: Path, sets: Iterable[Feeds], directory: Path) -> Any:
    """The smallest and the largest value of each input and output of a product, over all sets of inputs."""
    from onnxruntime.quantization import CalibrationMethod, create_calibrator

    with quiet():
        calibrator = create_calibrator(
            prepared,
            list(_PRODUCTS),
            augmented_model_path=str(directory / "augmented.onnx"),
            calibrate_method=CalibrationMethod.MinMax,
        )
        known = [port.name for port in calibrator.infer_session.get_inputs()]
        calibrator.collect_data(SetsReader(sets, known))
        return calibrator.compute_data()
