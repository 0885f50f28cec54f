from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from msgspec.structs import replace
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from kintune.core.model import ModelRef, Tensor
from kintune.errors import ModelError, ShapeError, UnsupportedOperators
from kintune.models.importer import load
from kintune.models.ref import parse_ref
from kintune.models.zoo import bert, gpt2, mobilenet, resnet, vit
from kintune.models.zoo.render import render

pytestmark = pytest.mark.tvm

FLOAT = TensorProto.FLOAT
HALF = TensorProto.FLOAT16
BFLOAT = TensorProto.BFLOAT16


def draw(*shape: int, scale: float = 1.0) -> Any:
    return (np.random.default_rng(0).standard_normal(shape) * scale).astype(np.float32)


SMALL = {"layers": 2, "hidden": 128, "heads": 2}
NETWORKS = {
    "resnet18": lambda: resnet.build(replace(resnet.RESNET18, image=64), 1),
    "mobilenet_v1": lambda: mobilenet.build(replace(mobilenet.MOBILENET_V1_0_5, image=32), 1),
    "mobilenet_v2": lambda: mobilenet.build(replace(mobilenet.MOBILENET_V2, image=32), 2),
    "bert": lambda: bert.build(replace(bert.BERT_BASE, vocabulary=512, sequence=16, **SMALL), 1),
    "roberta": lambda: bert.build(replace(bert.ROBERTA_LARGE, vocabulary=512, sequence=16, **SMALL), 2),
    "gpt2": lambda: gpt2.build(replace(gpt2.GPT2, vocabulary=512, sequence=16, **SMALL), 2),
    "vit": lambda: vit.build(replace(vit.VIT_BASE, image=64, **SMALL), 1),
}


ALIKE = ("mobilenet_v2", "roberta", "vit")
"""Networks of which the others have all operators."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in ALIKE else name for name in NETWORKS]
)
def test_zoo_networks_compute_what_onnxruntime_computes(
    tmp_path: Path,
    random_inputs: Any,
    run_module: Any,
    run_reference: Any,
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    model = load(parse_ref(str(render(NETWORKS[name](), tmp_path, seed=0))))
    assert capsys.readouterr() == ("", "")
    inputs = random_inputs(model.inputs)
    expected = run_reference(model.onnx_path, inputs)
    assert [(output.shape, output.dtype) for output in model.outputs] == [(e.shape, str(e.dtype)) for e in expected]
    for ours, theirs in zip(run_module(model, inputs), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4 * np.abs(theirs).max())


def test_a_zoo_name_is_written_into_the_cache_and_loaded(tmp_path: Path) -> None:
    model = load(parse_ref("zoo:mobilenet_v1_0.5?image=32&batch=2"), cache=tmp_path)
    assert model.name == "mobilenet_v1_0.5"
    assert model.inputs == (Tensor("input", (2, 3, 32, 32), "float32", values="image"),)
    assert [str(path) for path in tmp_path.iterdir()] == [model.onnx_path]


def test_a_model_knows_its_signature_and_its_weights_are_constants(samples: Any) -> None:
    path = samples.write(samples.linear_model(rows="n"), "line.onnx")
    model = load(parse_ref(str(path), ["x=3x64"]))
    assert model.inputs == (Tensor("x", (3, 64), "float32"),)
    assert model.outputs == (Tensor("y", (3, 512), "float32"),)
    assert (model.name, model.onnx_path, model.opset) == ("line", str(path), 17)
    main = model.module["main"]
    assert len(main.params) == 1
    assert int(main.attrs["num_input"]) == 1


def test_a_dynamic_model_is_bound_and_computes_the_same(
    samples: Any, random_inputs: Any, run_module: Any, run_reference: Any
) -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Slice", ["shape", "zero", "one"], ["rows"]),
        helper.make_node("Concat", ["rows", "rest"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w"], ["y"]),
    ]
    ports = [("x", FLOAT, ["batch", 4, "width"])], [("y", FLOAT, ["batch", 8])]
    weights = {"zero": np.array([0]), "one": np.array([1]), "rest": np.array([-1]), "w": draw(24, 8)}
    path = samples.write(samples.make_model(nodes, *ports, weights))
    with pytest.raises(ShapeError, match="add --shape x=1x4x64"):
        load(parse_ref(str(path)))
    model = load(parse_ref(str(path), ["x=5x4x6"]))
    inputs = random_inputs(model.inputs)
    np.testing.assert_allclose(
        run_module(model, inputs)[0], run_reference(model.onnx_path, inputs)[0], rtol=1e-5, atol=1e-5
    )


def test_float16_is_summed_in_float32(samples: Any, random_inputs: Any, run_module: Any, run_reference: Any) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Flatten", ["r"], ["f"]),
        helper.make_node("Gemm", ["f", "v", "b"], ["y"], transB=1),
    ]
    weights = {"w": draw(16, 3, 3, 3, scale=0.2), "v": draw(10, 1024, scale=0.03), "b": draw(10)}
    halves = {name: values.astype(np.float16) for name, values in weights.items()}
    path = samples.write(samples.make_model(nodes, [("x", HALF, [1, 3, 8, 8])], [("y", HALF, [1, 10])], halves))
    model = load(parse_ref(str(path)))
    assert model.outputs == (Tensor("y", (1, 10), "float16"),)
    inputs = random_inputs(model.inputs)
    ours, theirs = run_module(model, inputs)[0], run_reference(str(path), inputs)[0]
    np.testing.assert_allclose(ours, theirs, rtol=2e-3, atol=2e-3)


def test_bfloat16_works(samples: Any, random_inputs: Any, run_module: Any) -> None:
    import ml_dtypes

    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Relu", ["p"], ["y"])]
    weights = {"w": draw(256, 64, scale=0.1).astype(ml_dtypes.bfloat16)}
    proto = samples.make_model(nodes, [("x", BFLOAT, [2, 256])], [("y", BFLOAT, [2, 64])], weights)
    model = load(parse_ref(str(samples.write(proto))))
    inputs = random_inputs(model.inputs)
    expected = np.maximum(inputs["x"].astype(np.float32) @ weights["w"].astype(np.float32), 0)
    ours = run_module(model, inputs)[0].astype(np.float32)
    np.testing.assert_allclose(ours, expected, rtol=1e-2, atol=1e-2)


def test_quantised_operators_that_work(samples: Any, random_inputs: Any, run_module: Any, run_reference: Any) -> None:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=0),
        helper.make_node("Conv", ["xd", "wd"], ["c"], pads=[1] * 4),
        helper.make_node("Flatten", ["c"], ["f"]),
        helper.make_node("DynamicQuantizeLinear", ["f"], ["fq", "fs", "fz"]),
        helper.make_node("MatMulInteger", ["fq", "v", "fz"], ["i"]),
        helper.make_node("Cast", ["i"], ["ic"], to=FLOAT),
        helper.make_node("Mul", ["ic", "fs"], ["y"]),
    ]
    rng = np.random.default_rng(0)
    weights = {
        "xs": np.float32(0.02),
        "xz": np.uint8(128),
        "w": rng.integers(-127, 127, (16, 3, 3, 3)).astype(np.int8),
        "ws": np.full(16, 0.01, np.float32),
        "wz": np.zeros(16, np.int8),
        "v": rng.integers(-64, 64, (1024, 128)).astype(np.int8),  # no more, or onnxruntime saturates on some CPUs
    }
    proto = samples.make_model(nodes, [("x", FLOAT, [1, 3, 8, 8])], [("y", FLOAT, [1, 128])], weights)
    model = load(parse_ref(str(samples.write(proto))))
    inputs = random_inputs(model.inputs)
    ours, theirs = run_module(model, inputs)[0], run_reference(model.onnx_path, inputs)[0]
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3 * np.abs(theirs).max())


def test_all_operators_that_cannot_be_imported_are_listed_with_counts(samples: Any) -> None:
    inner = helper.make_graph(
        [helper.make_node("RandomNormalLike", ["m"], ["d"]), helper.make_node("Fancy", ["d"], ["k"], domain="mine")],
        "branch",
        [],
        [helper.make_tensor_value_info("k", FLOAT, [2])],
    )
    middle = helper.make_graph(
        [helper.make_node("If", ["c"], ["j"], then_branch=inner, else_branch=inner)],
        "middle",
        [],
        [helper.make_tensor_value_info("j", FLOAT, [2])],
    )
    nodes = [
        helper.make_node("If", ["c"], ["y"], then_branch=middle, else_branch=middle),
        helper.make_node("Attention", ["m"], ["z"], domain="ai.vendor"),
        helper.make_node("RandomUniformLike", ["s"], ["g"]),
        helper.make_node("Gelu", ["m"], ["gelu"], domain="ai.vendor"),
    ]
    inputs = [("c", TensorProto.BOOL, []), ("m", FLOAT, [2, 3, 3]), ("s", FLOAT, [1, 5, 5])]
    outputs = [("y", FLOAT, [2]), ("z", FLOAT, None), ("g", FLOAT, None), ("gelu", FLOAT, None)]
    proto = samples.make_model(nodes, inputs, outputs, domains=["mine", "ai.vendor"])
    with pytest.raises(UnsupportedOperators) as caught:
        load(parse_ref(str(samples.write(proto))))
    assert caught.value.counts == {
        "RandomNormalLike": 4,
        "mine::Fancy": 4,
        "ai.vendor::Attention": 1,
        "ai.vendor::Gelu": 1,
        "RandomUniformLike": 1,
    }


@pytest.mark.parametrize(("operator", "opset"), [("Celu", 17), ("Swish", 24)])
def test_operators_that_the_standard_writes_out_in_others_work(
    samples: Any, random_inputs: Any, run_module: Any, operator: str, opset: int
) -> None:
    node = helper.make_node(operator, ["x"], ["y"])
    proto = samples.make_model([node], [("x", FLOAT, [2, 8])], [("y", FLOAT, [2, 8])], opset=opset)
    model = load(parse_ref(str(samples.write(proto))))
    x = random_inputs(model.inputs)["x"]
    expected = np.maximum(x, 0) + np.minimum(np.expm1(x), 0) if operator == "Celu" else x / (1 + np.exp(-x))
    np.testing.assert_allclose(run_module(model, {"x": x})[0], expected, rtol=1e-5, atol=1e-6)


def test_a_shape_that_depends_on_data_is_refused(samples: Any) -> None:
    node = helper.make_node("NonZero", ["x"], ["y"])
    proto = samples.make_model([node], [("x", FLOAT, [2, 3])], [("y", TensorProto.INT64, [2, "n"])])
    with pytest.raises(ModelError, match=r"operator NonZero \(node of y\) .* depends on the data"):
        load(parse_ref(str(samples.write(proto))))


@pytest.mark.parametrize(
    ("node", "weights", "said"),
    [
        (helper.make_node("ConstantOfShape", ["s"], ["v"]), {"s": [1 << 20, 1 << 20]}, "ConstantOfShape of 'v' makes"),
        (
            helper.make_node("Range", ["a", "b", "c"], ["v"]),
            {"a": np.float32(0), "b": np.float32(1e12), "c": np.float32(1)},
            "Range of 'v' makes 99999",
        ),
        (helper.make_node("Expand", ["x", "s"], ["v"]), {"s": [1 << 40]}, "a result of .* is larger than any memory"),
    ],
)
def test_what_no_memory_holds_is_refused_at_once(samples: Any, node: Any, weights: dict[str, Any], said: str) -> None:
    add = helper.make_node("Add", ["x", "v"], ["y"])
    values = {name: np.asarray(value) for name, value in weights.items()}
    ends = [("x", TensorProto.FLOAT, [1])], [("y", TensorProto.FLOAT, None)]
    path = samples.write(samples.make_model([node, add], *ends, values))
    with pytest.raises(ModelError, match=said):
        load(parse_ref(str(path)))


def test_a_range_between_tensors_of_several_elements_is_refused(samples: Any) -> None:
    node = helper.make_node("Range", ["a", "b", "c"], ["v"])
    add = helper.make_node("Add", ["x", "v"], ["y"])
    ends = [("x", TensorProto.FLOAT, [1])], [("y", TensorProto.FLOAT, None)]
    values = {"a": np.zeros(2, np.float32), "b": np.float32(4), "c": np.float32(1)}
    values = {name: np.asarray(value) for name, value in values.items()}
    with pytest.raises(ModelError):
        load(parse_ref(str(samples.write(samples.make_model([node, add], *ends, values)))))


def test_what_no_memory_holds_is_refused_at_once_in_a_branch(samples: Any) -> None:
    size = helper.make_node(
        "Constant", [], ["s"], value=helper.make_tensor("s", TensorProto.INT64, [2], [1 << 20, 1 << 20])
    )
    made = helper.make_node("ConstantOfShape", ["s"], ["v"])
    branches = [
        helper.make_graph(nodes, name, [], [helper.make_tensor_value_info("v", TensorProto.FLOAT, None)])
        for name, nodes in (("huge", [size, made]), ("none", [helper.make_node("Identity", ["x"], ["v"])]))
    ]
    choice = helper.make_node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1])
    ends = [("x", TensorProto.FLOAT, [1]), ("c", TensorProto.BOOL, [])], [("y", TensorProto.FLOAT, None)]
    with pytest.raises(ModelError, match="ConstantOfShape of 'v' makes"):
        load(parse_ref(str(samples.write(samples.make_model([choice], *ends)))))


def test_a_node_the_importer_gives_up_on_is_named(samples: Any, capsys: pytest.CaptureFixture[str]) -> None:
    node = helper.make_node("CumSum", ["x", "axis"], ["y"], name="running")
    inputs = [("x", FLOAT, [2, 3]), ("axis", TensorProto.INT64, [])]
    proto = samples.make_model([node], inputs, [("y", FLOAT, [2, 3])])
    with pytest.raises(ModelError, match=r"operator CumSum \(node running\) cannot be imported: .*axis") as caught:
        load(parse_ref(str(samples.write(proto))))
    assert "\n" not in str(caught.value)
    assert capsys.readouterr() == ("", "")


def test_variables_lead_back_to_the_nodes(samples: Any) -> None:
    path = samples.write(samples.linear_model())
    model = load(parse_ref(str(path)))
    bound = [binding.var.name for block in model.module["main"].body.blocks for binding in block.bindings]
    assert [model.nodes[model.sources[name]] for name in bound[:-1]] == ["MatMul 'product'", "Add 'sum'", "Relu 'relu'"]
    assert [model.sources[parameter.name] for parameter in model.module["main"].params] == ["x"]


def test_a_node_that_the_standard_writes_out_is_named_for_all_it_is_written_out_in(samples: Any) -> None:
    node = helper.make_node("Swish", ["x"], ["y"], name="gate", alpha=2.0)
    proto = samples.make_model([node], [("x", FLOAT, [2, 3])], [("y", FLOAT, [2, 3])], opset=24)
    model = load(parse_ref(str(samples.write(proto))))
    inner = set(model.sources) - {parameter.name for parameter in model.module["main"].params}
    assert inner
    assert {model.nodes[model.sources[name]] for name in inner} == {"Swish 'gate'"}


def test_what_follows_from_constants_alone_is_a_constant(samples: Any) -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"], start=1),
        helper.make_node("NonZero", ["mask"], ["where"]),
        helper.make_node("If", ["yes"], ["chosen"], then_branch=_branch("Neg"), else_branch=_branch("NonZero")),
    ]
    outputs = [("shape", TensorProto.INT64, [1]), ("where", TensorProto.INT64, [1, 2]), ("chosen", FLOAT, [2, 3])]
    weights = {"mask": np.array([1, 0, 1], np.float32), "yes": np.array(True)}
    proto = samples.make_model(nodes, [("x", FLOAT, [2, 3])], outputs, weights)
    model = load(parse_ref(str(samples.write(proto))))
    values = {
        port.name: field
        for port, field in zip(
            model.outputs, model.module["main"].body.blocks[-1].bindings[-1].value.fields, strict=True
        )
    }
    np.testing.assert_array_equal(values["shape"].value.numpy(), [3])
    np.testing.assert_array_equal(values["where"].value.numpy(), [[0, 2]])
    assert model.outputs[2].shape == (2, 3)


def _branch(operator: str) -> onnx.GraphProto:
    """A branch of an If that applies an operator to the outer `x`."""
    result = f"{operator}_result"
    return helper.make_graph(
        [helper.make_node(operator, ["x"], [result])],
        operator,
        [],
        [helper.make_tensor_value_info(result, FLOAT, None)],
    )


def test_large_weights_are_bound_like_small_ones(
    samples: Any, random_inputs: Any, run_module: Any, run_reference: Any
) -> None:
    path = samples.write(samples.linear_model())
    model = load(parse_ref(str(path)))
    inputs = random_inputs(model.inputs)
    np.testing.assert_allclose(run_module(model, inputs)[0], run_reference(str(path), inputs)[0], rtol=1e-5, atol=1e-5)


def test_a_large_constant_may_be_an_index(
    samples: Any, random_inputs: Any, run_module: Any, run_reference: Any
) -> None:
    """It is bound after it was marked as one; DeBERTa has such tables of relative positions."""
    index = np.random.default_rng(0).integers(-3, 3, (3, 6000))
    nodes = [
        helper.make_node("GatherElements", ["x", "i"], ["elements"], axis=1),
        helper.make_node("Gather", ["x", "i"], ["rows"], axis=1),
    ]
    outputs = [("elements", FLOAT, [3, 6000]), ("rows", FLOAT, [3, 3, 6000])]
    path = samples.write(samples.make_model(nodes, [("x", FLOAT, [3, 3])], outputs, {"i": index}))
    model = load(parse_ref(str(path)))
    inputs = random_inputs(model.inputs)
    for ours, theirs in zip(run_module(model, inputs), run_reference(str(path), inputs), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_bounds_of_clip_max_and_min(samples: Any, run_module: Any) -> None:
    nodes = [
        helper.make_node("Clip", ["x", "low", "high"], ["both"]),
        helper.make_node("Clip", ["x", "", "high"], ["above"]),
        helper.make_node("Max", ["x", "low", "row"], ["greatest"]),
        helper.make_node("Min", ["x"], ["alone"]),
    ]
    outputs = [(name, FLOAT, [2, 3]) for name in ("both", "above", "greatest", "alone")]
    weights = {"low": np.float32(-0.5), "high": np.float32(0.5), "row": np.array([0, 1, -9], np.float32)}
    proto = samples.make_model(nodes, [("x", FLOAT, [2, 3])], outputs, weights)
    x = draw(2, 3)
    ours = run_module(load(parse_ref(str(samples.write(proto)))), {"x": x})
    for got, expected in zip(ours, ReferenceEvaluator(proto).run(None, {"x": x}), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_a_zoo_directory_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match="cannot be written to"):
        load(parse_ref("zoo:mobilenet_v1_0.5?image=32"), cache=tmp_path / "file" / "below")


def test_a_model_that_others_handed_in_has_its_weights_inside(samples: Any) -> None:
    path = samples.write_external("w.data")
    (path.parent / "w.data").write_bytes(bytes(64 * 512 * 4))
    with pytest.raises(ModelError, match="weight 'w': lies in another file, which is not read"):
        load(ModelRef("onnx", str(path), "m"))
    assert load(ModelRef("onnx", str(path), "m", own=True)).inputs


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ModelError, match="'caffe' is no kind of model"):
        load(ModelRef(kind="caffe", source="x", name="x"))


def test_importing_leaves_warnings_as_they_were(samples: Any) -> None:
    before = list(warnings.filters)
    load(parse_ref(str(samples.write(samples.linear_model()))))
    assert list(warnings.filters) == before


@pytest.mark.parametrize(
    ("node", "said"),
    [
        (
            helper.make_node("Attention", ["x", "w", "b"], ["y"], domain="com.microsoft", num_heads=2, do_rotary=1),
            "rotary positions are not supported",
        ),
        (helper.make_node("MeanVarianceNormalization", ["x"], ["y"], across_channels=1), "before operator set 9"),
    ],
    ids=["rotary positions", "old attributes of a norm"],
)
def test_what_would_be_computed_wrongly_is_refused(samples: Any, node: Any, said: str) -> None:
    weights = {"w": draw(8, 24), "b": draw(24)} if node.op_type == "Attention" else {}
    proto = samples.make_model([node], [("x", FLOAT, [1, 4, 8])], [("y", FLOAT, [1, 4, 8])], weights, 8)
    if node.domain:
        proto.opset_import[0].version = 17
        proto.opset_import.append(helper.make_opsetid(node.domain, 1))
    with pytest.raises(ModelError, match=said):
        load(parse_ref(str(samples.write(proto))))


def test_outputs_without_a_name_at_the_end_are_none(samples: Any, random_inputs: Any, run_module: Any) -> None:
    node = helper.make_node("MaxPool", ["x"], ["y", ""], kernel_shape=[2, 2])
    proto = samples.make_model([node], [("x", FLOAT, [1, 2, 2, 2])], [("y", FLOAT, [1, 2, 1, 1])])
    model = load(parse_ref(str(samples.write(proto))))
    inputs = random_inputs(model.inputs)
    (found,) = run_module(model, inputs)
    assert found.tolist() == inputs["x"].max((2, 3), keepdims=True).tolist()


@pytest.mark.parametrize("transposed", [False, True])
def test_quantised_weights_of_a_product_stay_integers(samples: Any, transposed: bool) -> None:
    """Also behind a Transpose, as a linear layer over data of three axes is exported."""
    moved = [helper.make_node("Transpose", ["d"], ["t"])] if transposed else []
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["d"]),
        *moved,
        helper.make_node("MatMul", ["x", "t" if transposed else "d"], ["y"]),
    ]
    weights = {"w": np.ones((8, 8), np.int8), "s": np.float32(0.5), "z": np.int8(0)}
    proto = samples.make_model(nodes, [("x", FLOAT, [1, 4, 8])], [("y", FLOAT, [1, 4, 8])], weights)
    assert "dequantize" in load(parse_ref(str(samples.write(proto)))).module.script()
