from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kintune.core.model import ModelRef, Tensor

pytestmark = pytest.mark.tvm


def imported(directory: Path, nodes: list[Any], inputs: dict[str, tuple[int, list[int]]], **constants: Any) -> Any:
    """The inputs of a model of these nodes by name, as the importer describes them; its output is `y`."""
    import onnx
    from onnx import helper, numpy_helper

    from kintune.models.importer import load

    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()],
        [helper.make_tensor_value_info("y", 1, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    path = directory / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return {tensor.name: tensor for tensor in load(ModelRef("onnx", str(path), "m")).inputs}


def described(tensor: Tensor) -> tuple[str, int]:
    return tensor.values, tensor.below


def test_ids_lie_in_the_table_that_they_are_looked_up_in(tmp_path: Path) -> None:
    from onnx import helper

    table = np.ones((50, 4), np.float32)
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["a"]),
        helper.make_node("Gather", ["types", "kinds"], ["b"]),
        helper.make_node("Unsqueeze", ["places", "axes"], ["wide"]),
        helper.make_node("Cast", ["wide"], ["longer"], to=7),
        helper.make_node("Add", ["longer", "two"], ["moved"]),
        helper.make_node("Gather", ["table", "moved"], ["c"]),
        helper.make_node("Add", ["a", "b"], ["ab"]),
        helper.make_node("Add", ["ab", "c"], ["y"]),
    ]
    found = imported(
        tmp_path,
        nodes,
        {"ids": (7, [1, 6]), "kinds": (7, [1, 6]), "places": (6, [6])},
        table=table,
        types=table[:2],
        two=np.int64(2),
        axes=np.array([0]),
    )
    assert {name: described(tensor) for name, tensor in found.items()} == {
        "ids": ("ids", 50),
        "kinds": ("ids", 2),
        "places": ("ids", 48),
    }


def test_what_is_compared_with_all_numbers_from_zero_on_is_one_of_them(tmp_path: Path) -> None:
    from onnx import helper

    nodes = [
        helper.make_node("Unsqueeze", ["x", "axes"], ["wide"]),
        helper.make_node("Equal", ["wide", "all"], ["hot"]),
        helper.make_node("Cast", ["hot"], ["y"], to=1),
    ]
    found = imported(tmp_path, nodes, {"x": (7, [1, 6])}, all=np.arange(9), axes=np.array([2]))
    assert described(found["x"]) == ("ids", 9)


def test_masks_bytes_counts_images_and_conditions(tmp_path: Path) -> None:
    from onnx import helper

    floats = ["attention_mask", "raw", "counted", "picture", "plain"]
    nodes: list[Any] = [helper.make_node("Cast", [name], [f"{name}_f"], to=1) for name in floats]
    nodes += [helper.make_node("ReduceSum", [f"{name}_f"], [f"{name}_s"], keepdims=0) for name in floats]
    nodes += [
        helper.make_node("Where", ["chosen", "one", "zero"], ["w"]),
        helper.make_node("Sum", ["w", *(f"{name}_s" for name in floats)], ["y"]),
    ]
    found = imported(
        tmp_path,
        nodes,
        {
            "attention_mask": (7, [1, 6]),
            "raw": (2, [16]),
            "counted": (6, [3]),
            "picture": (1, [1, 16, 16, 3]),
            "plain": (1, [1, 16]),
            "chosen": (9, [2, 8]),
        },
        one=np.float32(1),
        zero=np.float32(0),
    )
    assert {name: tensor.values for name, tensor in found.items()} == {
        "attention_mask": "mask",
        "raw": "bytes",
        "counted": "counts",
        "picture": "image",
        "plain": "",
        "chosen": "mask",
    }


def test_an_index_that_is_computed_stays_unknown(tmp_path: Path) -> None:
    from onnx import helper

    nodes = [
        helper.make_node("Mul", ["x", "x"], ["square"]),
        helper.make_node("Gather", ["table", "square"], ["y"]),
    ]
    found = imported(tmp_path, nodes, {"x": (7, [4])}, table=np.ones((3, 2), np.float32))
    assert described(found["x"]) == ("", 0)


def test_indices_are_bounded_only_where_each_is_looked_up(tmp_path: Path) -> None:
    from onnx import helper

    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["a"]),
        helper.make_node("Cast", ["small"], ["wide"], to=7),
        helper.make_node("Add", ["wide", "two"], ["moved"]),
        helper.make_node("Gather", ["table", "moved"], ["b"]),
        helper.make_node("Slice", ["some", "start", "end"], ["part"]),
        helper.make_node("Gather", ["table", "part"], ["c"]),
        helper.make_node("Less", ["padded", "zero"], ["is_padding"]),
        helper.make_node("Where", ["is_padding", "zero", "padded"], ["replaced"]),
        helper.make_node("Gather", ["table", "replaced"], ["d"]),
        helper.make_node("Sum", ["a", "b", "c", "d"], ["y"]),
    ]
    found = imported(
        tmp_path,
        nodes,
        {"ids": (7, [3]), "small": (3, [3]), "some": (7, [5]), "padded": (7, [3])},
        table=np.ones((50, 4), np.float32),
        two=np.int64(2),
        zero=np.int64(0),
        start=np.array([1]),
        end=np.array([4]),
    )
    assert {name: tensor.bounds for name, tensor in found.items()} == {
        "ids": (-50, 49),
        "small": (-52, 47),
        "some": None,
        "padded": None,
    }


def test_what_only_decided_extents_is_sizes(tmp_path: Path) -> None:
    from onnx import helper

    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"]), helper.make_node("Cast", ["n"], ["z"], to=1)]
    import onnx

    from kintune.models.importer import load

    ends = [("x", 1, [2, 3]), ("shape", 7, [2]), ("n", 7, [2]), ("y", 1, [3, 2]), ("z", 1, [2])]
    values = [helper.make_tensor_value_info(*each) for each in ends]
    graph = helper.make_graph(nodes, "g", values[:3], values[3:])
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    found = {tensor.name: tensor.values for tensor in load(ModelRef("onnx", str(path), "m")).inputs}
    assert found == {"x": "", "shape": "sizes", "n": "counts"}
