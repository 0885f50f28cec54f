"""A network of two layers as an ONNX file and as an executable, for tests that need a real one at once."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
import tvm
from onnx import TensorProto, helper, numpy_helper

from kintune.compiler.graph.executable import build_executable, build_vm_executable, describe_build
from kintune.compiler.graph.lower import lower
from kintune.core.model import Tensor
from kintune.models.importer import load
from kintune.models.ref import parse_ref
from kintune.runtime.executable import Executable
from kintune.runtime.target import resolve_target
from kintune.runtime.vm_executable import VmExecutable

__all__ = ["TinyNetwork", "make_tiny_network"]

_ROWS, _WIDE, _NARROW = 4, 48, 10


class TinyNetwork(NamedTuple):
    """The same network three times: `y` [4, 10] of `x` [4, 48] and `bias` [10], and `positive`: where `y` > 0.

    `vm_executable` is for the compiler's virtual machine, which runs a network on a board.
    """

    onnx: Path
    executable: Executable
    vm_executable: VmExecutable


def make_tiny_network(
    directory: str | os.PathLike[str], *, seed: int = 0, skew: float = 0.0, target: str = "native"
) -> TinyNetwork:
    """Write `tiny.onnx` to `directory` and compile it for `target` with the default schedule.

    `skew` is added to the executable's first weight alone, so that it computes something else.
    """
    path = Path(directory, "tiny.onnx")
    model = _onnx_model(seed)
    onnx.save(model, path)
    target = resolve_target(target, threads=1)
    compiler_target = tvm.target.Target(json.loads(target))
    lowered = lower(load(parse_ref(str(path))).module, compiler_target)
    first, *others = lowered.weights
    lowered = lowered._replace(weights=(tvm.runtime.tensor(first.numpy() + np.float32(skew)), *others))
    manifest = describe_build(
        model_name="tiny",
        model_digest="0" * 32,
        target=target,
        threads=1,
        inputs=[Tensor("x", (_ROWS, _WIDE), "float32"), Tensor("bias", (_NARROW,), "float32")],
        outputs=[Tensor("y", (_ROWS, _NARROW), "float32"), Tensor("positive", (_ROWS, _NARROW), "bool")],
        chosen={},
    )
    return TinyNetwork(
        path,
        build_executable(lowered, {}, compiler_target, manifest),
        build_vm_executable(lowered, {}, compiler_target, manifest),
    )


def _onnx_model(seed: int) -> onnx.ModelProto:
    generator = np.random.default_rng(seed)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        values = generator.standard_normal(shape, np.float32) / np.float32(np.sqrt(shape[0]))
        return numpy_helper.from_array(values, name)

    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w1"], ["h"]),
            helper.make_node("Relu", ["h"], ["a"]),
            helper.make_node("MatMul", ["a", "w2"], ["z"]),
            helper.make_node("Add", ["z", "bias"], ["y"]),
            helper.make_node("Greater", ["y", "zero"], ["positive"]),
        ],
        "tiny",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [_ROWS, _WIDE]),
            helper.make_tensor_value_info("bias", TensorProto.FLOAT, [_NARROW]),
        ],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, [_ROWS, _NARROW]),
            helper.make_tensor_value_info("positive", TensorProto.BOOL, [_ROWS, _NARROW]),
        ],
        [
            weight("w1", _WIDE, _WIDE),
            weight("w2", _WIDE, _NARROW),
            numpy_helper.from_array(np.zeros((), np.float32), "zero"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
