"""Kernels with whatever is fused to them compute on extreme inputs what onnxruntime does, or ONNX's reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from kintune.core.model import ModelRef
from tests.support.examples import compiled_examples
from tests.support.extreme_runs import extreme_difference

pytestmark = pytest.mark.tvm

CHANNELS, SIDE = 8, 6
UNARY = (
    *("Relu", "Sigmoid", "Tanh", "Exp", "Erf", "Abs", "Neg", "Sqrt", "Softplus", "HardSwish", "Elu", "LeakyRelu"),
    *("Floor", "Round", "Sign", "Reciprocal", "HardSigmoid", "Softsign", "Selu", "Celu", "Mish"),
)
STEPS = st.lists(
    st.one_of(
        st.sampled_from(UNARY).map(lambda name: (name, 0.0)),
        st.tuples(
            st.sampled_from(("Add", "Mul", "Sub", "Div", "Max", "Min", "Pow")), st.sampled_from((0.5, 2.0, -1.0))
        ),
        st.tuples(st.sampled_from(("Clip", "Residual", "Softmax", "LayerNormalization")), st.just(1.0)),
    ),
    min_size=1,
    max_size=4,
)


def model_of(core: str, steps: list[tuple[str, float]]) -> Any:
    """A product, a convolution or neither, and the steps after it."""
    draw = np.random.default_rng(0)
    image = core in ("Conv", "Depthwise")
    shape = (1, CHANNELS, SIDE, SIDE) if image else (SIDE, CHANNELS)
    constants: dict[str, Any] = {}
    nodes = []
    if image:
        groups = CHANNELS if core == "Depthwise" else 1
        constants["w"] = draw.standard_normal((CHANNELS, CHANNELS // groups, 3, 3)) / 3
        nodes.append(helper.make_node("Conv", ["x", "w"], ["core"], pads=[1, 1, 1, 1], group=groups))
    elif core == "MatMul":
        constants["w"] = draw.standard_normal((CHANNELS, CHANNELS)) / 3
        nodes.append(helper.make_node("MatMul", ["x", "w"], ["core"]))
    else:
        nodes.append(helper.make_node("Identity", ["x"], ["core"]))
    at = "core"
    for number, (name, value) in enumerate(steps):
        after, constant = f"step{number}", f"c{number}"
        if name == "Residual":
            nodes.append(helper.make_node("Add", [at, "core"], [after]))
        elif name == "Clip":
            constants |= {f"{constant}l": np.array(-value), f"{constant}h": np.array(value)}
            nodes.append(helper.make_node("Clip", [at, f"{constant}l", f"{constant}h"], [after]))
        elif name == "LayerNormalization":
            constants[constant] = np.full(shape[-1], value)
            nodes.append(helper.make_node(name, [at, constant], [after], axis=-1))
        elif name in UNARY or name == "Softmax":
            nodes.append(helper.make_node(name, [at], [after]))
        else:
            constants[constant] = np.array(value)
            nodes.append(helper.make_node(name, [at, constant], [after]))
        at = after
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", at)]
    weights = [numpy_helper.from_array(np.asarray(value, np.float32), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), shape


@pytest.mark.parametrize("rules", [False, True], ids=["untuned", "rules"])
@compiled_examples(40, deadline=None, phases=[Phase.generate])
@given(st.sampled_from(("Conv", "Depthwise", "MatMul", "none")), STEPS)
def test_what_is_fused_keeps_extremes(
    tmp_path_factory: pytest.TempPathFactory, rules: bool, core: str, steps: list[tuple[str, float]]
) -> None:
    from kintune.models.importer import load
    from kintune_lab.fuzz.compiling import Compiler

    model, shape = model_of(core, steps)
    path: Path = tmp_path_factory.mktemp("extreme") / "m.onnx"
    path.write_bytes(model.SerializeToString())
    executable = Compiler().compile(load(ModelRef("onnx", str(path), "m")), rules=rules)
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    assert extreme_difference(executable, model, {"x": x}, 1e-3, 1e-3) == "", (core, steps)
