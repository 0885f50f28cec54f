from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

pytestmark = pytest.mark.tvm

SIZES = (12, 15, 17, 26, 41, 43, 64)  # with all remainders of 4
OTHER = 23  # a size that none of the modules was lowered for


def _image(path: Path, size: int) -> Path:
    """A convolution of stride two, pools, a sum of neighbours, and means, over an image as wide as `size`."""
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(rng.standard_normal(shape, np.float32), name)
        for name, shape in (("kernel", (8, 3, 3, 3)), ("bias", (8,)), ("matrix", (8, 5)))
    ]
    nodes = [
        helper.make_node("Conv", ["x", "kernel", "bias"], ["c"], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[1, 2], strides=[1, 2]),
        helper.make_node("Concat", ["r", "p"], ["j"], axis=3),
        helper.make_node("GlobalAveragePool", ["j"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("MatMul", ["f", "matrix"], ["m"]),
        helper.make_node("Softmax", ["j"], ["s"], axis=-1),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 6, size])
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("m", "s")]
    model = helper.make_model(helper.make_graph(nodes, "image", [x], outputs, weights), ir_version=10)
    path.write_bytes(model.SerializeToString())
    return path


def _steps(path: Path, size: int) -> Path:
    """A running sum that is written out: as many nodes as there are steps."""
    nodes = [helper.make_node("Split", ["x"], [f"x{at}" for at in range(size)], axis=0, num_outputs=size)]
    total = "x0"
    for at in range(1, size):
        nodes += [
            helper.make_node("Tanh", [total], [f"t{at}"]),
            helper.make_node("Add", [f"t{at}", f"x{at}"], [f"s{at}"]),
        ]
        total = f"s{at}"
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [size, 4])
    y = helper.make_tensor_value_info(total, TensorProto.FLOAT, None)
    model = helper.make_model(helper.make_graph(nodes, "steps", [x], [y]), ir_version=10)
    path.write_bytes(model.SerializeToString())
    return path


@pytest.fixture(scope="module")
def lowered(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Any]:
    return {size: _lowered(_image, size, tmp_path_factory.mktemp("image")) for size in (*SIZES, OTHER)}


def _lowered(write: Any, size: int, folder: Path) -> Any:
    from kintune.compiler.graph.lower import lower
    from kintune.models.importer import load
    from kintune.models.ref import parse_ref
    from tests.support.targets import native_target

    return lower(load(parse_ref(str(write(folder / f"m{size}.onnx", size)))).module, native_target()).module


def _kernels(module: Any) -> Iterator[tuple[str, Any]]:
    for variable, function in module.functions_items():
        if str(variable.name_hint) != "main":
            yield str(variable.name_hint), function.with_attr("global_symbol", "main")


def _run(function: Any, like: Any) -> Sequence[np.ndarray]:
    """The operands after a run of the kernel on operands as `like` takes them."""
    import tvm

    from kintune.compiler.graph.own_rules import own_rules
    from kintune.compiler.space.generator import default_schedules
    from tests.support.targets import native_target

    target = native_target()
    with target, own_rules(target):
        module = tvm.transform.Sequential(default_schedules(target))(tvm.IRModule({"main": function}))
        built = tvm.tirx.build(module, target=target)
    rng = np.random.default_rng(1)
    given = [
        tvm.runtime.tensor(rng.standard_normal([int(extent) for extent in each.ty.shape], np.float32))
        for each in like.params
    ]
    built["main"](*given)
    return [each.numpy() for each in given]


def test_kernels_made_of_some_sizes_compute_any_size(lowered: dict[int, Any]) -> None:
    from kintune.compiler.graph.generalise import generalise

    general, doubts = generalise([lowered[size] for size in SIZES], [{"width": size} for size in SIZES])
    assert not doubts
    assert "width" in str(general["main"].params[0].ty)
    expected = dict(_kernels(lowered[OTHER]))
    found = dict(_kernels(general))
    assert set(found) == set(expected)
    assert len(found) > 5
    for name, function in found.items():
        for one, other in zip(_run(function, expected[name]), _run(expected[name], expected[name]), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5, err_msg=name)


def test_a_kernel_has_the_extents_of_its_operands_as_variables(lowered: dict[int, Any]) -> None:
    from kintune.compiler.graph.generalise import generalise

    general, _ = generalise([lowered[size] for size in SIZES], [{"width": size} for size in SIZES])
    (convolution,) = [function for name, function in _kernels(general) if "conv2d" in name]
    image, *_, result = [[str(extent) for extent in each.ty.shape] for each in convolution.params]
    assert image[2] == "d0"
    assert "d0" in result[2]
    assert "//" in result[2]


def test_equal_modules_stay_as_they_are(lowered: dict[int, Any]) -> None:
    import tvm_ffi

    from kintune.compiler.graph.generalise import generalise

    general, _ = generalise([lowered[OTHER]] * 3, [{"width": OTHER}] * 3)
    assert tvm_ffi.structural_equal(general, lowered[OTHER], map_free_vars=True)


def test_another_number_of_nodes_is_said(tmp_path: Path) -> None:
    from kintune.compiler.graph.generalise import Unlike, generalise

    modules = [_lowered(_steps, size, tmp_path) for size in (3, 4, 6)]
    with pytest.raises(Unlike, match=r"\d+ or \d+ or \d+ parts|fields"):
        generalise(modules, [{"steps": size} for size in (3, 4, 6)])


def test_points_are_asked_for_where_numbers_are_in_doubt(lowered: dict[int, Any]) -> None:
    """Of sizes that are multiples of four, none tells how a stride rounds."""
    from kintune.compiler.graph.generalise import generalise

    sizes = (12, 64)
    _, doubts = generalise([lowered[size] for size in sizes], [{"width": size} for size in sizes])
    assert doubts
    assert all(12 <= point["width"] <= 64 and point["width"] % 4 for point in doubts)
