"""ONNX Runtime on the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from kintune.graph.inputs import Array
from kintune.measure.rivals.rival import Subject

__all__ = ["OnnxRuntime"]

_ERRORS_ONLY = 3


class OnnxRuntime:
    """All graph optimisations, the given intra-op threads (which spin between runs, as is its default), sequential."""

    _session: Any
    _inputs: dict[str, Array]

    def unavailable(self, subject: Subject) -> str | None:
        """It needs an ONNX file."""
        if subject.onnx is None:
            return "the model is not an ONNX file"
        return None if find_spec("onnxruntime") else "not installed: pip install onnxruntime"

    def prepare(self, subject: Subject, threads: int, inputs: Mapping[str, Array]) -> None:
        """Load and optimise the model, its dynamic dimensions fixed to those of the inputs."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.log_severity_level = _ERRORS_ONLY
        for dimension, extent in _free_dimensions(str(subject.onnx), inputs).items():
            options.add_free_dimension_override_by_name(dimension, extent)
        self._session = onnxruntime.InferenceSession(subject.onnx, options, providers=["CPUExecutionProvider"])
        self._inputs = dict(inputs)

    def run(self) -> list[Array]:
        """Run once."""
        outputs: list[Array] = self._session.run(None, self._inputs)
        return outputs


def _free_dimensions(path: str, inputs: Mapping[str, Array]) -> dict[str, int]:
    """The extents of the model's named dynamic dimensions, as the inputs have them."""
    import onnx

    graph = onnx.load(path, load_external_data=False).graph
    return {
        dimension.dim_param: extent
        for value in graph.input
        if value.name in inputs
        for dimension, extent in zip(value.type.tensor_type.shape.dim, inputs[value.name].shape, strict=False)
        if dimension.dim_param
    }
