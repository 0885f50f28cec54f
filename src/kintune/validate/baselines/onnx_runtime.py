"""ONNX Runtime on the CPU."""

from __future__ import annotations

import itertools
import mmap
import os
import re
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from kintune.core.dtypes import numpy_dtype
from kintune.models.byte_products import NAMES, with_exact_products
from kintune.models.final_sigmoids import exact_sigmoid, leave_out
from kintune.models.given_draws import give_draws
from kintune.models.wide_bfloat16 import widen_bfloat16
from kintune.runtime.inputs import Array
from kintune.validate.baselines.baseline import BaselineModel
from kintune.validate.baselines.node_times import NodeTimes, node_times
from kintune.validate.numerics import perturbed
from kintune_runtime.library import library

__all__ = ["OnnxRuntime", "OnnxRuntimeFlushing"]

_ERRORS_ONLY = 3
_PROVIDERS = ["CPUExecutionProvider"]
_CHANGED = tuple(name.encode() for name in ("Sigmoid", *sorted(NAMES)))
"""What a file names that has such operators."""
_SIZED = {"Range": 0, "Resize": 1, "Upsample": 1}  # operators, and the first of the inputs that extents depend on
_NEWEST_FORMAT = re.compile(r"max supported IR version: (\d+)")
_EXTERNAL_DATA = "session.model_external_initializers_file_folder_path"


class OnnxRuntime:
    """All graph optimisations, the given intra-op threads (which spin between runs, as is its default), sequential.

    With `exact` it does not optimise the graph: optimised, it multiplies in 8 bits what the model dequantises, and
    keeps halves wider than the model says.  Products of bytes do not saturate then.  A model of bfloat16 that it has no
    kernels for runs in float32.  Outputs that are a sigmoid are that of float64.
    """

    _flush = False  # denormal numbers
    _session: Any
    _subject: BaselineModel
    _threads: int
    _weights: list[Any]
    _inputs: dict[str, Array]
    _sigmoids: frozenset[str] = frozenset()  # outputs whose sigmoid is still to be computed
    _narrow: frozenset[str] | None = None  # outputs that are bfloat16, where the model runs in float32 instead

    def __init__(self, exact: bool = False) -> None:
        self._exact = exact

    def unavailable(self, subject: BaselineModel) -> str | None:
        """It needs an ONNX file."""
        if subject.onnx is None:
            return "the model is not an ONNX file"
        return None if find_spec("onnxruntime") else "not installed: pip install onnxruntime"

    def prepare(self, subject: BaselineModel, threads: int, inputs: Mapping[str, Array]) -> None:
        """Load and optimise the model, its dynamic dimensions fixed to those of the inputs."""
        self._subject, self._threads = subject, threads
        self.feed(inputs)
        self._session = self._opened()

    def perturb_weights(self, seed: int) -> None:
        """Open the model again with perturbed values of its floating-point weights."""
        self._session = self._opened(seed)

    def profile(self, runs: int, seconds: float) -> NodeTimes:
        """Run with onnxruntime's own profiler, at most so many times and seconds, in a session of its own."""
        import onnxruntime

        with tempfile.TemporaryDirectory(prefix="kintune-profile-") as folder:
            session = self._opened(profile=str(Path(folder) / "nodes"))
            session.run(None, self._inputs)  # untimed: memory is planned
            begun, count = time.perf_counter(), 0
            while count < 1 or (count < runs and time.perf_counter() - begun < seconds):
                session.run(None, self._inputs)
                count += 1
            path = Path(session.end_profiling())
            return NodeTimes(node_times(msgspec.json.decode(path.read_bytes()), untimed=1), onnxruntime.__version__)

    def _opened(self, seed: int | None = None, profile: str = "") -> Any:
        """Opens a session; with a `seed`, its weights are perturbed, and with the start of a path it is profiled."""
        import onnxruntime

        path = str(self._subject.onnx)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self._threads
        options.inter_op_num_threads = 1
        options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        options.log_severity_level = _ERRORS_ONLY
        if self._exact:
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        else:
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
            for dimension, extent in _free_dimensions(path, self._inputs).items():
                options.add_free_dimension_override_by_name(dimension, extent)
        if profile:
            options.enable_profiling, options.profile_file_prefix = True, profile
        if self._flush:  # the option sets the threads of the session, and not always the one that runs it
            library().kt_denormals_set(True)
            options.add_session_config_entry("session.set_denormal_as_zero", "1")
        self._weights = [] if seed is None else _replace_weights(path, options, seed)  # the session reads these
        try:
            session, self._sigmoids = _open(path, options, given_draws=self._subject.given_draws, exact=self._exact)
            return session
        except Exception:
            if not self._exact:
                raise
            wide = _widened(path, seed)
            if wide is None:
                raise
        (content, self._narrow), self._sigmoids = wide, frozenset()
        return onnxruntime.InferenceSession(content, options, providers=_PROVIDERS)

    def feed(self, inputs: Mapping[str, Array]) -> None:
        """Keep the inputs, and the constants of the file's own."""
        self._inputs = self._subject.feeds(inputs)

    def run(self) -> list[Array]:
        """Run once."""
        if self._narrow is None:
            outputs: list[Array] = self._session.run(None, self._inputs)
            if not self._sigmoids:
                return outputs
            named = zip([value.name for value in self._session.get_outputs()], outputs, strict=True)
            return [exact_sigmoid(array) if name in self._sigmoids else array for name, array in named]
        short = numpy_dtype("bfloat16")
        fed = {n: array.astype(np.float32) if array.dtype == short else array for n, array in self._inputs.items()}
        names = [value.name for value in self._session.get_outputs()]
        found = zip(names, self._session.run(names, fed), strict=True)
        return [array.astype(short) if name in self._narrow else array for name, array in found]


class OnnxRuntimeFlushing(OnnxRuntime):
    """The same with its option to flush denormal numbers to zero, as Kintune's results do, in a process of its own."""

    _flush = True


def _open(path: str, options: Any, *, given_draws: bool, exact: bool) -> tuple[Any, frozenset[str]]:
    """Opens a session of the model; with `given_draws`, it draws the same numbers in each run.

    If it is `exact`, products of bytes are exact, and final sigmoids are left out; the outputs that lack theirs are
    returned as well.

    A file whose format is newer than onnxruntime knows is opened as one of the newest format that it knows: the
    operators that it knows need nothing newer, and its error names any other operator.
    """
    import onnx
    import onnxruntime

    content: str | bytes = path
    changes = given_draws or (exact and _contains(path, _CHANGED))
    read = onnx.load(path, load_external_data=False) if changes else onnx.ModelProto()
    model = with_exact_products(read) if exact else read
    sigmoids = leave_out(model) if exact else frozenset()
    if (given_draws and give_draws(model)) or sigmoids or model is not read:
        options.add_session_config_entry(_EXTERNAL_DATA, str(Path(path).parent))
        content = model.SerializeToString()
    try:
        return onnxruntime.InferenceSession(content, options, providers=_PROVIDERS), sigmoids
    except Exception as error:
        known = _NEWEST_FORMAT.search(str(error))
        if known is None:
            raise
    model = onnx.load(path, load_external_data=False) if isinstance(content, str) else model
    model.ir_version = int(known.group(1))
    options.add_session_config_entry(_EXTERNAL_DATA, str(Path(path).parent))
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=_PROVIDERS), sigmoids


def _widened(path: str, seed: int | None) -> tuple[bytes, frozenset[str]] | None:
    """A model of bfloat16 in float32, its weights perturbed with a `seed`, and its outputs that were bfloat16.

    None for any other model.
    """
    import onnx

    try:
        model = onnx.load(path)
    except Exception:  # onnxruntime's own error says it
        return None
    numbers = itertools.count()
    change = None if seed is None else lambda values: perturbed(values, (seed, next(numbers)))
    narrow = widen_bfloat16(model, change)
    return None if narrow is None else (model.SerializeToString(), narrow)


def _contains(path: str, names: Sequence[bytes]) -> bool:
    """Whether the file has one of these names anywhere."""
    with open(path, "rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return False
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return any(content.find(name) >= 0 for name in names)


def _replace_weights(path: str, options: Any, seed: int) -> list[Any]:
    """Give the session's options perturbed floating-point weights; returns these, which the session does not copy."""
    import onnx
    import onnxruntime

    kept = []
    graph = onnx.load(path).graph
    fixed = weights_of_shapes(graph)
    for number, tensor in enumerate(graph.initializer):
        if tensor.name in fixed or tensor.data_type not in (
            onnx.TensorProto.FLOAT,
            onnx.TensorProto.FLOAT16,
            onnx.TensorProto.DOUBLE,
        ):
            continue
        array = perturbed(onnx.numpy_helper.to_array(tensor), (seed, number))
        if array.size:
            kept.append(onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array)))
            options.add_initializer(tensor.name, kept[-1])
    return kept


def weights_of_shapes(graph: Any) -> set[str]:
    """The names of the tensors of a GraphProto from which extents are computed, such as the scales of Resize.

    Noise on them would change shapes.  Extents that are read from other tensors (Shape, Size) do not depend on values.
    """
    found = {name for node in graph.node if node.op_type in _SIZED for name in node.input[_SIZED[node.op_type] :]}
    for node in reversed(graph.node):
        if node.op_type not in ("Shape", "Size") and not found.isdisjoint(node.output):
            found.update(node.input)
    return found


def _free_dimensions(path: str, inputs: Mapping[str, Array]) -> dict[str, int]:
    """The extents of the model's named dynamic dimensions, as the inputs have them."""
    import onnx

    graph = onnx.load(path, load_external_data=False).graph
    extents = {
        (dimension.dim_param, extent)
        for value in graph.input
        if value.name in inputs
        for dimension, extent in zip(value.type.tensor_type.shape.dim, inputs[value.name].shape, strict=False)
        if dimension.dim_param
    }
    names = Counter(name for name, _ in extents)  # one with several extents, such as "?", only says "dynamic"
    return {name: extent for name, extent in extents if names[name] == 1}
