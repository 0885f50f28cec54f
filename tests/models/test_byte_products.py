"""Products of bytes are exact: the changed node computes what sums of integers do, and meets no signed byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from kintune.models.byte_products import NAMES, with_exact_products
from kintune.models.evaluation import open_session

TYPES = {"u": np.uint8, "s": np.int8}
ROWS, DEPTH, COLUMNS = 3, 34, 5


def extremes(kind: str, *shape: int) -> Any:
    limits = np.iinfo(TYPES[kind])
    return np.random.default_rng(len(shape)).choice(np.array([limits.min, limits.max], TYPES[kind]), shape)


def scalar(value: float, dtype: Any = np.float32) -> Any:
    return np.array(value, dtype)


def made(node: onnx.NodeProto, values: dict[str, Any], constants: tuple[str, ...] = ()) -> onnx.ModelProto:
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in values.items()
        if name not in constants
    ]
    weights = [numpy_helper.from_array(values[name], name) for name in constants]
    graph = helper.make_graph([node], "g", inputs, [helper.make_value_info("y", onnx.TypeProto())], weights)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def computed(model: onnx.ModelProto, values: dict[str, Any]) -> Any:
    session = open_session(model)
    return session.run(None, {each.name: values[each.name] for each in session.get_inputs()})[0]


def mixed(model: onnx.ModelProto) -> bool:
    """Whether a product has a signed operand beside an unsigned one."""
    inferred = onnx.shape_inference.infer_shapes(model).graph
    types = {each.name: each.type.tensor_type.elem_type for each in (*inferred.input, *inferred.value_info)}
    types |= {tensor.name: tensor.data_type for tensor in inferred.initializer}
    (product,) = [node for node in inferred.node if node.op_type in NAMES]
    kinds = {types.get(name) for name in product.input}
    return {TensorProto.INT8, TensorProto.UINT8} <= kinds


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("kinds", ["uu", "us", "su", "ss"])
def test_products_of_integers(kinds: str, zeros: bool, constant: bool) -> None:
    a, b = extremes(kinds[0], ROWS, DEPTH), extremes(kinds[1], DEPTH, COLUMNS)
    values = {"a": a, "b": b}
    names, (of_a, of_b) = ["a", "b"], (0, 0)
    if zeros:
        of_a, of_b = 3, 5
        values |= {"za": scalar(of_a, a.dtype), "zb": scalar(of_b, b.dtype)}
        names += ["za", "zb"]
    model = made(helper.make_node("MatMulInteger", names, ["y"]), values, tuple(names[1::2]) if constant else ())
    assert not mixed(with_exact_products(model))
    assert mixed(model) == (len(set(kinds)) > 1)
    np.testing.assert_array_equal(computed(model, values), (a.astype(int) - of_a) @ (b.astype(int) - of_b))


@pytest.mark.parametrize("kinds", ["us", "su"])
def test_convolutions_of_integers(kinds: str) -> None:
    x, w = extremes(kinds[0], 1, DEPTH, 1, COLUMNS), extremes(kinds[1], ROWS, DEPTH, 1, 1)
    model = made(helper.make_node("ConvInteger", ["x", "w"], ["y"]), {"x": x, "w": w})
    wanted = np.einsum("oc,cw->ow", w[:, :, 0, 0].astype(int), x[0, :, 0].astype(int))
    np.testing.assert_array_equal(computed(model, {"x": x, "w": w})[0, :, 0], wanted)


@pytest.mark.parametrize("operator", ["QLinearMatMul", "QLinearConv", "QGemm", "MatMulIntegerToFloat"])
def test_products_that_are_scaled(operator: str) -> None:
    a, b = extremes("u", ROWS, DEPTH), extremes("s", DEPTH, COLUMNS)
    values = {"a": a, "b": b, "one": scalar(1), "za": scalar(3, np.uint8), "zb": scalar(5, np.int8), "of": scalar(4000)}
    names = ["a", "one", "za", "b", "one", "zb", "of", "za"]
    if operator == "QLinearConv":
        values |= {"a": a.T[None].copy(), "b": b.T[:, :, None].copy()}
    elif operator == "QGemm":
        names = [*names[:6], "", "of", "za"]
    elif operator == "MatMulIntegerToFloat":
        names = ["a", "b", "one", "one", "za", "zb"]
    own = operator in ("QGemm", "MatMulIntegerToFloat")
    node = helper.make_node(operator, names, ["y"], domain="com.microsoft" if own else "")
    exact = (a.astype(int) - 3) @ (b.astype(int) - 5)
    if operator != "MatMulIntegerToFloat":
        exact = np.clip(np.rint(exact / 4000) + 3, 0, 255).astype(int)
    found = computed(made(node, {name: values[name] for name in dict.fromkeys(names) if name}), values)
    np.testing.assert_array_equal(found[0].T if operator == "QLinearConv" else found, exact)


def test_rows_that_the_operator_quantises() -> None:
    x = np.repeat(np.float32([[0], [255]]), DEPTH, 1)
    w = extremes("s", DEPTH, COLUMNS)
    values = {"x": x, "w": w, "one": scalar(1), "z": scalar(0, np.int8)}
    node = helper.make_node("DynamicQuantizeMatMul", ["x", "w", "one", "z"], ["y"], domain="com.microsoft")
    found = computed(made(node, values), values)
    np.testing.assert_allclose(found, x @ w.astype(np.float32), rtol=1e-6)


def test_both_weights_of_a_recurrent_layer_are_unsigned() -> None:
    values = {
        "x": np.float32(np.linspace(0, 1, 2 * ROWS * DEPTH)).reshape(2, ROWS, DEPTH),
        "w": extremes("s", 1, DEPTH, 4 * COLUMNS),
        "r": extremes("s", 1, COLUMNS, 4 * COLUMNS),
        "scale": np.float32([0.001]),
        "z": np.int8([1]),
    }
    names = ["x", "w", "r", "", "", "", "", "", "scale", "z", "scale", "z"]
    node = helper.make_node("DynamicQuantizeLSTM", names, ["y"], domain="com.microsoft", hidden_size=COLUMNS)
    changed = with_exact_products(made(node, values))
    assert not mixed(changed)
    whole = computed(changed, values)
    model = made(node, values)
    del model.graph.node[:], model.graph.output[:]
    for which in "ab":  # the first result is left out of both
        model.graph.node.append(onnx.NodeProto())
        model.graph.node[-1].CopyFrom(node)
        model.graph.node[-1].output[:] = ["", which]
        model.graph.output.append(helper.make_value_info(which, onnx.TypeProto()))
    np.testing.assert_array_equal(computed(model, values)[0], whole[-1, 0])


def test_weights_in_another_file_are_changed_while_it_runs(tmp_path: Path) -> None:
    values = {"a": extremes("u", ROWS, DEPTH), "b": extremes("s", DEPTH, 256)}
    onnx.save(
        made(helper.make_node("MatMulInteger", ["a", "b"], ["y"]), values, ("b",)),
        tmp_path / "m.onnx",
        save_as_external_data=True,
        location="weights",
    )
    changed = with_exact_products(onnx.load(tmp_path / "m.onnx", load_external_data=False))
    assert not mixed(changed)
    onnx.save(changed, tmp_path / "changed.onnx")
    whole = onnx.load(tmp_path / "changed.onnx")
    np.testing.assert_array_equal(computed(whole, values), values["a"].astype(int) @ values["b"].astype(int))


def test_other_models_stay_as_they_are() -> None:
    model = made(helper.make_node("Relu", ["x"], ["y"]), {"x": np.ones(2, np.float32)})
    assert with_exact_products(model) is model
