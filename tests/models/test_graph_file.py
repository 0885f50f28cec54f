from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from kintune.errors import ModelError
from kintune.models.graph_file import open_graph

CONV = helper.make_node("Relu", ["x"], ["y"])
PORTS = ([("x", TensorProto.FLOAT, [2])], [("y", TensorProto.FLOAT, [2])])


def test_weights_are_taken_apart_and_put_together_again(samples: Any) -> None:
    model = samples.linear_model()
    file = open_graph(samples.write(model))
    assert {name: values.shape for name, values in file.weights.items()} == {"w": (64, 512), "b": (512,)}
    assert file.large_weights() == {"w"}
    assert not file.graph.graph.initializer
    assert [tensor.name for tensor in file.assemble().graph.initializer] == ["w", "b"]
    hollow = file.assemble(outside={"w"})
    assert [value.name for value in hollow.graph.input] == ["x", "w"]
    assert [tensor.name for tensor in hollow.graph.initializer] == ["b"]


def test_every_truncation_is_refused_or_still_whole(samples: Any) -> None:
    whole = samples.linear_model().SerializeToString()
    path = samples.directory / "cut.onnx"
    step = max(1, len(whole) // 200)
    for size in [*range(64), *range(64, len(whole), step), *range(len(whole) - 64, len(whole))]:
        path.write_bytes(whole[:size])
        with pytest.raises(ModelError, match=r"empty|not an ONNX file|incomplete|not a valid|damaged"):
            open_graph(path)


@pytest.mark.parametrize("content", [b"hello", b"\0" * 100, b"{}", b"\x08\x08", bytes(range(256))])
def test_what_is_not_onnx_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.onnx").write_bytes(content)
    with pytest.raises(ModelError, match="is not an ONNX file, or is incomplete"):
        open_graph(tmp_path / "a.onnx")


def test_onnxruntimes_own_format_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.ort").write_bytes(b"\x18\0\0\0ORTM" + bytes(100))
    with pytest.raises(ModelError, match="is in onnxruntime's own format; give the ONNX file that it was made from"):
        open_graph(tmp_path / "a.ort")


def test_a_file_that_disappeared_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot be read: No such file"):
        open_graph(tmp_path / "a.onnx")


def test_a_graph_that_is_not_valid_is_refused(samples: Any) -> None:
    model = samples.make_model([helper.make_node("Relu", ["nowhere"], ["y"])], *PORTS)
    with pytest.raises(ModelError, match="is not a valid ONNX model"):
        open_graph(samples.write(model))


@pytest.mark.parametrize(
    ("operator", "opset"), [("LayerNormalization", 14), ("SimplifiedLayerNormalization", 17), ("ThresholdedRelu", 9)]
)
def test_operators_that_onnxruntime_has_in_the_domain_of_the_standard_pass(
    samples: Any, operator: str, opset: int
) -> None:
    scale = ["s"] if operator.endswith("Normalization") else []
    node = helper.make_node(operator, ["x", *scale], ["y"])
    file = open_graph(samples.write(samples.make_model([node], *PORTS, {"s": np.ones(2, np.float32)}, opset)))
    assert [(node.op_type, node.domain) for node in file.graph.graph.node] == [(operator, "")]


def test_a_node_that_onnxruntime_does_not_know_in_that_domain_is_refused(samples: Any) -> None:
    with pytest.raises(ModelError, match="No Op registered for RMSNormalization"):
        open_graph(samples.write(samples.make_model([helper.make_node("RMSNormalization", ["x"], ["y"])], *PORTS)))


def test_what_onnxruntime_does_not_need_may_be_missing(samples: Any) -> None:
    """Tools that expose a tensor add an output without a type."""
    model = samples.make_model([helper.make_node("Relu", ["x"], ["h"]), helper.make_node("Relu", ["h"], ["y"])], *PORTS)
    model.graph.output.append(onnx.ValueInfoProto(name="h"))
    model.graph.name = ""
    for value in ("1", "2"):
        model.metadata_props.add(key="twice", value=value)
    file = open_graph(samples.write(model))
    assert [port.name for port in file.graph.graph.output] == ["y", "h"]
    assert file.graph.graph.output[1].type.WhichOneof("value") is None


def test_a_weight_that_does_not_fill_its_shape_is_named(samples: Any) -> None:
    model = samples.make_model([CONV], *PORTS, {"w": np.zeros(8, np.float32)})
    model.graph.initializer[0].dims[:] = [2**40]
    with pytest.raises(ModelError, match="weight 'w' is damaged"):
        open_graph(samples.write(model))


def test_a_constant_that_does_not_fill_its_shape_is_named(samples: Any) -> None:
    constant = helper.make_node("Constant", [], ["c"], value=TensorProto(name="c", data_type=1, dims=[2**60]))
    model = samples.make_model([CONV, constant], *PORTS, {"w": np.zeros((4, 3, 3, 3), np.float32)})
    with pytest.raises(ModelError, match=r"constant 'c' is damaged: its shape 1152921504606846976 needs"):
        open_graph(samples.write(model))


def test_weights_that_the_memory_does_not_hold_are_refused(samples: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = samples.make_model([CONV], *PORTS, {"w": np.zeros((64, 64), np.float32)})
    monkeypatch.setattr("kintune.models.graph_file.memory_mb", lambda: 0)
    with pytest.raises(ModelError, match=r"weights take .* GiB \(the largest is 'w'\)"):
        open_graph(samples.write(model))


def test_a_weight_of_an_unknown_type_is_named(samples: Any) -> None:
    model = samples.make_model([CONV], *PORTS, {"w": np.zeros(8, np.float32)})
    model.graph.initializer[0].data_type = 99
    with pytest.raises(ModelError, match="weight 'w'"):
        open_graph(samples.write(model))


def test_strings_are_weights_in_the_graph(samples: Any) -> None:
    model = samples.make_model([CONV], *PORTS)
    model.graph.initializer.append(helper.make_tensor("words", TensorProto.STRING, [20000], [b"\xc3\xa4"] * 20000))
    file = open_graph(samples.write(model))
    assert file.weights["words"].tolist() == ["\xe4"] * 20000
    assert file.large_weights() == set()
    assert file.assemble().graph.initializer[0].string_data[0] == b"\xc3\xa4"


def test_sparse_weights_are_refused_by_name(samples: Any) -> None:
    model = samples.make_model([CONV], *PORTS)
    values, indices = (helper.make_tensor(name, kind, [1], [0]) for name, kind in (("v", 1), ("i", 7)))
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [4]))
    with pytest.raises(ModelError, match="sparse"):
        open_graph(samples.write(model))


def test_two_weights_of_one_name_are_refused(samples: Any) -> None:
    model = samples.make_model([CONV], *PORTS, {"w": np.zeros(8, np.float32)})
    model.graph.initializer.append(model.graph.initializer[0])
    with pytest.raises(ModelError, match="two weights named 'w'"):
        open_graph(samples.write(model))


def test_a_weight_that_is_also_an_input_is_no_input(samples: Any) -> None:
    model = samples.linear_model()
    model.graph.input.append(helper.make_tensor_value_info("b", TensorProto.FLOAT, [512]))
    assert [value.name for value in open_graph(samples.write(model)).graph.graph.input] == ["x"]


def test_local_functions_are_inlined(samples: Any) -> None:
    opset = helper.make_opsetid("", 17)
    body = [helper.make_node("Relu", ["a"], ["r"]), helper.make_node("Neg", ["r"], ["b"])]
    function = helper.make_function("mine", "NegRelu", ["a"], ["b"], body, [opset])
    call = helper.make_node("NegRelu", ["x"], ["y"], domain="mine")
    model = samples.make_model([call], *PORTS, domains=["mine"], functions=[function])
    assert [node.op_type for node in open_graph(samples.write(model)).graph.graph.node] == ["Relu", "Neg"]


def own_function(name: str, *called: str) -> onnx.FunctionProto:
    tensors = ["a", *(f"t{number}" for number in range(1, len(called))), "b"]
    nodes = [
        helper.make_node(each, [tensors[number]], [tensors[number + 1]], domain="" if each == "Relu" else "own")
        for number, each in enumerate(called)
    ]
    return helper.make_function(
        "own", name, ["a"], ["b"], nodes, [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    )


@pytest.mark.parametrize(
    ("functions", "said"),
    [
        ([("F0", "F0")], "is not a valid ONNX model: its function 'F0' calls itself"),
        ([("F0", "F1"), ("F1", "Relu", "F0")], "is not a valid ONNX model: its function 'F0' calls itself"),
        (
            [*((f"F{n}", f"F{n + 1}", f"F{n + 1}") for n in range(40)), ("F40", "Relu")],
            "its local functions become more than 1000000 nodes",
        ),
    ],
)
def test_functions_without_an_end_are_refused_at_once(
    samples: Any, functions: list[tuple[str, ...]], said: str
) -> None:
    model = samples.make_model([helper.make_node("F0", ["x"], ["y"], domain="own")], *PORTS)
    model.functions.extend(own_function(*each) for each in functions)
    model.opset_import.append(helper.make_opsetid("own", 1))
    with pytest.raises(ModelError, match=said):
        open_graph(samples.write(model))


def test_an_attribute_of_a_function_outside_of_one_is_refused(samples: Any) -> None:
    model = samples.make_model([helper.make_node("Elu", ["x"], ["y"], "e")], *PORTS)
    model.graph.node[0].attribute.add(name="alpha", type=onnx.AttributeProto.FLOAT, ref_attr_name="slope")
    with pytest.raises(ModelError, match="node Elu 'e': its attribute alpha is that of a function, and it is in none"):
        open_graph(samples.write(model))


@pytest.mark.parametrize(
    ("operator", "inputs", "scanned", "said"),
    [
        ("Scan", ["x"], 1 << 31, "it scans 2147483648 of 1 inputs"),
        ("Scan", ["x"], 0, "it scans 0 of 1 inputs"),
        ("Scan", ["x", "x", "x"], 1, "its body takes 1 inputs, and it has 3"),
        ("Loop", ["", "", "x", "x", "x"], None, "its body takes 1 inputs, and it has 5"),
        ("Scan", ["x"], 1, "its body gives 1 results, and it has 2"),
    ],
)
def test_a_body_that_does_not_fit_its_loop_is_refused(
    samples: Any, operator: str, inputs: list[str], scanned: int | None, said: str
) -> None:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("p", "q")]
    body = helper.make_graph([helper.make_node("Relu", ["p"], ["q"])], "body", ends[:1], ends[1:])
    outputs = ["y", "z"] if said.endswith("it has 2") else ["y"]
    more = {} if scanned is None else {"num_scan_inputs": scanned}
    model = samples.make_model([helper.make_node(operator, inputs, outputs, "steps", body=body, **more)], *PORTS)
    with pytest.raises(ModelError, match=f"node {operator} 'steps': {said}"):
        open_graph(samples.write(model))


def test_external_data_of_nested_tensors_is_read_under_the_same_rules(samples: Any, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"\0" * 64)
    constant = helper.make_node(
        "Constant", [], ["k"], value=helper.make_tensor("k", TensorProto.FLOAT, [2], [1.0, 2.0])
    )
    tensor = constant.attribute[0].t
    del tensor.float_data[:]
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../secret")
    branch = helper.make_graph([constant], "b", [], [helper.make_tensor_value_info("k", TensorProto.FLOAT, [2])])
    nodes = [helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)]
    model = samples.make_model(nodes, [("c", TensorProto.BOOL, [])], [("y", TensorProto.FLOAT, [2])])
    with pytest.raises(ModelError, match="is not beside the model"):
        open_graph(samples.write(model), own=True)
    for attribute in model.graph.node[0].attribute:
        attribute.g.node[0].attribute[0].t.external_data[0].value = "k.data"
    path = samples.write(model)
    (path.parent / "k.data").write_bytes(np.array([3, 4], "<f4").tobytes())
    inner = open_graph(path, own=True).graph.graph.node[0].attribute[0].g.node[0].attribute[0].t
    assert inner.raw_data == np.array([3, 4], "<f4").tobytes()
