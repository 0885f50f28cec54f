"""Operators that read or write by indices: right where those lie inside, an error that names them where not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper, numpy_helper

from kintune.errors import InputError, ModelError
from kintune.models.ref import parse_ref
from tests.support.examples import compiled_examples
from tests.support.untuned import build_untuned

pytestmark = pytest.mark.tvm

OPSET = 18
Array = NDArray[Any]


def indexed(operator: str, data: Array, indices: Array, updates: Array | None = None, **attributes: Any) -> list[Any]:
    """The operands and the attributes of a node."""
    return [operator, [data, indices] + ([] if updates is None else [updates]), attributes]


def network(nodes: Sequence[list[Any]], computed: bool) -> tuple[ModelProto, dict[str, Array]]:
    """A network of nodes beside each other, whose indices are inputs, or computed from inputs."""
    made, ports, feeds, outputs = [], [], {}, []
    weights = [numpy_helper.from_array(np.int64(2), "two")]
    for i, (operator, operands, attributes) in enumerate(nodes):
        names = [f"{letter}{i}" for letter in "xiu"[: len(operands)]]
        for name, values in zip(names, operands, strict=True):
            ports.append(
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(values.dtype), values.shape)
            )
            feeds[name] = values
        if computed:  # twice and half of it
            made.append(helper.make_node("Mul", [names[1], "two"], [f"twice{i}"]))
            made.append(helper.make_node("Div", [f"twice{i}", "two"], [f"index{i}"]))
            names[1] = f"index{i}"
        made.append(helper.make_node(operator, names, [f"y{i}"], f"node{i}", **attributes))
        kind = helper.np_dtype_to_tensor_dtype(operands[0].dtype)
        outputs.append(helper.make_tensor_value_info(f"y{i}", kind, None))
    graph = helper.make_graph(made, "g", ports, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10), feeds


def expected(model: ModelProto, feeds: dict[str, Array]) -> dict[str, Array]:
    """What onnxruntime computes."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


def written(directory: Path, model: ModelProto) -> Path:
    path = directory / "m.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def every_operator() -> list[list[Any]]:
    """One node or more of each operator, with indices from both ends."""
    draw = np.random.default_rng(0)
    data = draw.standard_normal((3, 4, 5)).astype(np.float32)
    index = np.array([[0, -1], [2, -3]])
    elements = draw.integers(-4, 4, (3, 4, 5))
    distinct = np.stack([draw.permutation(4) for _ in range(6)]).reshape(3, 2, 4).transpose(0, 2, 1)
    updates = draw.standard_normal((3, 4, 5)).astype(np.float32)
    places = np.array([[0, -1], [2, 3], [-3, -4]])
    rows = draw.standard_normal((3, 5)).astype(np.float32)
    return [
        indexed("Gather", data, index),
        indexed("Gather", data, np.array(-5), axis=-1),
        indexed("GatherElements", data, elements, axis=1),
        indexed("GatherElements", data, elements[:2, :, :3], axis=1),
        indexed("GatherND", data, places),
        indexed("GatherND", data, np.array([[-4], [3], [1]]), batch_dims=1),
        indexed("ScatterElements", data, distinct - 4, updates[:, :, :2].copy(), axis=1),
        *(
            indexed("ScatterElements", data, elements[:2, :, :3], updates[:2, :, :3].copy(), axis=1, reduction=how)
            for how in ("add", "mul", "min", "max")
        ),
        *(  # two axes on one side of the one that is indexed are smaller than the data's
            indexed("ScatterElements", data, part, updates[:2, :2, :1].copy(), axis=axis)
            for axis, part in ((0, np.array([[[1], [0]], [[-1], [-2]]])), (2, np.array([[[4], [-2]], [[0], [2]]])))
        ),
        indexed("ScatterND", data, places, rows),
        *(indexed("ScatterND", data, places, rows, reduction=how) for how in ("add", "mul", "min", "max")),
        *(indexed("ScatterND", data > 0, places, rows > 0, reduction=how) for how in ("add", "mul")),
    ]


@pytest.mark.parametrize("computed", [False, True], ids=["given", "computed"])
def test_indices_that_lie_inside(tmp_path: Path, computed: bool) -> None:
    model, feeds = network(every_operator(), computed)
    executable = build_untuned(parse_ref(str(written(tmp_path, model))))
    assert [tensor.name for tensor in executable.outputs] == [f"y{i}" for i in range(len(every_operator()))]
    found = executable.run(feeds)
    for name, values in expected(model, feeds).items():
        np.testing.assert_allclose(found[name], values, 1e-5, 1e-6, err_msg=name)


@pytest.mark.parametrize("computed", [False, True], ids=["given", "computed"])
def test_an_index_outside_is_an_error_that_names_it(tmp_path: Path, computed: bool) -> None:
    model, feeds = network(every_operator(), computed)
    executable = build_untuned(parse_ref(str(written(tmp_path, model))))
    before = executable.run(feeds)
    for i, (operator, (data, index, *_), attributes) in enumerate(every_operator()):
        axis = attributes.get("axis", attributes.get("batch_dims", 0)) % data.ndim
        for value in (data.shape[axis], -data.shape[axis] - 1, 10**9, -(10**9)):
            wrong = index.copy()
            wrong[(0,) * index.ndim] = value
            with pytest.raises(InputError) as error:
                executable.run({**feeds, f"i{i}": wrong})
            text = str(error.value)
            assert str(value) in text
            assert "\n" not in text
            if "the inputs lead to" in text:
                assert f"{operator} 'node{i}'" in text
                assert f"axis {axis} with {data.shape[axis]} elements" in text
            else:
                assert not computed
                assert f"'i{i}'" in text
                assert f"{-data.shape[axis]} and {data.shape[axis] - 1} ({data.shape[axis]} entries)" in text
    again = executable.run(feeds)
    assert all(np.array_equal(before[name], again[name]) for name in before)


def test_nothing_is_written_outside(tmp_path: Path) -> None:
    """The program itself, without its checks, writes inside its tensor alone."""
    data, updates = np.zeros((4, 3), np.float32), np.ones((2, 3), np.float32)
    nodes = [
        indexed("ScatterND", data, np.array([[-900], [5000]]), updates, reduction="add"),
        indexed("ScatterElements", data, np.array([[7, -9, 10**8], [4, -5, 1]]), updates, reduction="add"),
        indexed("Gather", np.ones((4, 3), np.float32), np.array([10**9, -(10**9)])),
    ]
    model, feeds = network(nodes, True)
    executable = build_untuned(parse_ref(str(written(tmp_path, model))), by_vm=True)
    assert executable.manifest.checks
    object.__setattr__(executable, "manifest", unchecked(executable.manifest))
    found = executable.run(feeds)
    assert found["y0"].sum() == 6
    assert found["y1"].sum() == 6
    assert (found["y2"] == 1).all()


def unchecked(manifest: Any) -> Any:
    import msgspec

    return msgspec.structs.replace(manifest, checks=())


def test_an_index_that_cannot_be_outside_is_not_checked(tmp_path: Path) -> None:
    from kintune.models.importer import load

    data = np.zeros((4, 3), np.float32)
    nodes = [
        helper.make_node("ArgMax", ["x"], ["largest"], axis=0, keepdims=0),
        helper.make_node("Gather", ["x", "largest"], ["y0"]),
        helper.make_node("Mod", ["i", "four"], ["rest"]),
        helper.make_node("Gather", ["x", "rest"], ["y1"]),
        helper.make_node("TopK", ["x", "one"], ["best", "where"], axis=0),
        helper.make_node("GatherElements", ["x", "where"], ["y2"]),
        helper.make_node("Clip", ["i", "low", "high"], ["limited"]),
        helper.make_node("Gather", ["x", "limited"], ["y3"]),
    ]
    model = helper.make_model(
        helper.make_graph(
            nodes,
            "g",
            [
                helper.make_tensor_value_info("x", TensorProto.FLOAT, data.shape),
                helper.make_tensor_value_info("i", TensorProto.INT64, (5,)),
            ],
            [helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, None) for i in range(4)],
            [
                numpy_helper.from_array(np.int64(4), "four"),
                numpy_helper.from_array(np.array([1]), "one"),
                numpy_helper.from_array(np.int64(-4), "low"),
                numpy_helper.from_array(np.int64(3), "high"),
            ],
        ),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=10,
    )
    path = written(tmp_path, model)
    loaded = load(parse_ref(str(path)))
    assert loaded.checks == ()
    assert [tensor.bounds for tensor in loaded.inputs] == [None, None]
    feeds = {
        "x": np.random.default_rng(1).standard_normal(data.shape).astype(np.float32),
        "i": np.array([-9, -1, 0, 3, 700]),
    }
    found = build_untuned(parse_ref(str(path))).run(feeds)
    for name, values in expected(model, feeds).items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)


def test_a_branch_that_is_not_taken_may_be_outside(tmp_path: Path) -> None:
    def branch(name: str, index: str) -> Any:
        nodes = [helper.make_node("Gather", ["x", index], [name])]
        return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(name, TensorProto.FLOAT, (2,))])

    nodes = [
        helper.make_node("Less", ["i", "size"], ["each"]),
        helper.make_node("Cast", ["each"], ["number"], to=TensorProto.INT64),
        helper.make_node("ReduceMin", ["number"], ["least"], keepdims=0),
        helper.make_node("Cast", ["least"], ["inside"], to=TensorProto.BOOL),
        helper.make_node("Mul", ["i", "zero"], ["first"]),
        helper.make_node("If", ["inside"], ["y"], then_branch=branch("a", "i"), else_branch=branch("b", "first")),
    ]
    model = helper.make_model(
        helper.make_graph(
            nodes,
            "g",
            [
                helper.make_tensor_value_info("x", TensorProto.FLOAT, (4,)),
                helper.make_tensor_value_info("i", TensorProto.INT64, (2,)),
            ],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, (2,))],
            [numpy_helper.from_array(np.int64(4), "size"), numpy_helper.from_array(np.int64(0), "zero")],
        ),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=10,
    )
    executable = build_untuned(parse_ref(str(written(tmp_path, model))))
    x = np.arange(4, dtype=np.float32) + 1
    assert executable.run({"x": x, "i": np.array([3, 1])})["y"].tolist() == [4, 2]
    assert executable.run({"x": x, "i": np.array([3, 800])})["y"].tolist() == [1, 1]


def test_what_reads_from_nothing_is_refused(tmp_path: Path) -> None:
    from kintune.models.importer import load

    model, _ = network([indexed("GatherElements", np.zeros((0, 2), np.float32), np.zeros((1, 2), np.int64))], False)
    with pytest.raises(ModelError, match="without elements"):
        load(parse_ref(str(written(tmp_path, model))))


@compiled_examples(8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_drawn_nodes_agree_or_refuse_as_the_reference_does(tmp_path: Path, data: st.DataObject) -> None:
    draw = data.draw
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    size = shape[axis]
    random = np.random.default_rng(draw(st.integers(0, 99)))
    values = random.standard_normal(shape).astype(np.float32)
    operator = draw(st.sampled_from(["Gather", "GatherElements", "ScatterElements"]))
    inner = [draw(st.integers(1, extent)) for extent in shape]
    low, high = draw(st.sampled_from([(-size, size), (0, size), (-size - 1, size + 1)]))
    index = random.integers(low, high, inner)
    node = (
        indexed(operator, values, index, random.standard_normal(inner).astype(np.float32), axis=axis, reduction="add")
        if operator == "ScatterElements"
        else indexed(operator, values, index, axis=axis)
    )
    model, feeds = network([node], draw(st.booleans()))
    executable = build_untuned(parse_ref(str(written(tmp_path, model))))
    try:
        wanted = expected(model, feeds)
    except Exception:
        with pytest.raises(InputError, match=str(size)):
            executable.run(feeds)
        return
    np.testing.assert_allclose(executable.run(feeds)["y0"], wanted["y0"], 1e-5, 1e-6)


def test_one_hot(compare: Any, make_case: Any) -> None:
    indices = np.array([[0, 2, -1], [4, -5, 7]], np.int64)
    depth = np.array(5, np.int64)
    values = np.array([0.5, 2], np.float32)
    cases = [make_case("OneHot", indices, depth, values, constant=[1], axis=axis) for axis in (-1, 0, 1)]
    cases.append(make_case("OneHot", indices, depth, values.astype(np.int64), constant=[1, 2]))
    compare(cases, 11)


@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_a_part_of_each_batch_is_replaced(compare: Any, make_case: Any, mode: str) -> None:
    draw = np.random.default_rng(0).standard_normal
    data, part = draw((2, 3, 5, 4)).astype(np.float32), draw((2, 3, 2, 4)).astype(np.float32)
    starts = np.array([1, 4 if mode == "circular" else 3], np.int64)
    compare(
        [
            make_case("TensorScatter", data, part, starts, mode=mode),
            make_case("TensorScatter", data, part, mode=mode),
            make_case("TensorScatter", data[:, 0], part[:, 0], starts, mode=mode, axis=1),
        ],
        24,
    )


def test_sequences_are_reversed_as_far_as_they_go(compare: Any, make_case: Any) -> None:
    data = np.arange(24, dtype=np.float32).reshape(4, 3, 2)
    compare(
        [
            make_case("ReverseSequence", data, np.array([1, 4, 2], np.int64)),
            make_case("ReverseSequence", data, np.array([3, 1, 2, 3], np.int64), time_axis=1, batch_axis=0),
        ],
        17,
    )
