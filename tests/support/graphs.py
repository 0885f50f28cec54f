"""Builds small ONNX files as exporters write them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

__all__ = ["Graph", "run_onnxruntime"]


class Graph:
    """Collects the nodes and weights of a graph.  A node is added by calling the graph, which gives its result's name.

    Its input is "x", of float32; weights are drawn from [0.5, 1.5].
    """

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._draw = np.random.default_rng(2)

    def __call__(self, operator: str, *inputs: str, **attributes: Any) -> str:
        name = f"{operator}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], **attributes))
        return name

    def weight(self, *shape: int) -> str:
        return self.constant(self._draw.random(shape, dtype=np.float32) + np.float32(0.5))

    def constant(self, values: Any, kind: Any = np.float32) -> str:
        name = f"weight_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values, kind), name))
        return name

    def conv(self, x: str, inputs: int, outputs: int, kernel: int = 3, **attributes: Any) -> str:
        """A convolution without a bias; its padding keeps rows and columns, unless `attributes` say otherwise."""
        weight = self.weight(outputs, inputs // attributes.get("group", 1), kernel, kernel)
        return self("Conv", x, weight, **{"pads": [kernel // 2] * 4, **attributes})

    def save(self, path: Path, x: Sequence[int], results: Sequence[str], opset: int = 17) -> Path:
        """Write a model with these results, of float32, whose input has the shape `x`."""
        graph = helper.make_graph(
            self.nodes,
            "graph",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, x)],
            [helper.make_tensor_value_info(result, TensorProto.FLOAT, None) for result in results],
            self.weights,
        )
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10), path)
        return path


def run_onnxruntime(path: Path, x: NDArray[Any]) -> list[NDArray[Any]]:
    """What onnxruntime computes of the file's input "x", with nothing rewritten."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return [np.asarray(found) for found in session.run(None, {"x": x})]
