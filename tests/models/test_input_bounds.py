"""The bounds of inputs that are indices: what is inside is looked up, unguarded, and all else is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from kintune.core.model import ModelRef
from kintune.errors import InputError
from tests.support.examples import compiled_examples

pytestmark = pytest.mark.tvm

COUNT = 4
STEPS = st.one_of(
    st.tuples(st.just("Add"), st.integers(-3, 3)),
    st.tuples(st.sampled_from(("Unsqueeze", "Slice", "Cast", "Identity", "Wrap")), st.just(0)),
)


def model_of(sizes: list[int], steps: list[tuple[str, int]], dtype: str) -> Any:
    """Tables of these sizes, looked up by one input; the steps lie before the last lookup."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes, constants, at, wide = [], {}, "ids", kind
    for number, (what, amount) in enumerate(steps):
        after, value = f"step{number}", f"value{number}"
        number_type = helper.tensor_dtype_to_np_dtype(wide)
        if what == "Add":
            constants[value] = np.array(amount, number_type)
            nodes.append(helper.make_node("Add", [at, value], [after]))
        elif what == "Unsqueeze":
            constants[value] = np.array([0], np.int64)
            nodes += [helper.make_node("Unsqueeze", [at, value], [f"{after}u"]),
                      helper.make_node("Squeeze", [f"{after}u", value], [after])]  # fmt: skip
        elif what == "Slice":
            constants |= {f"{value}{n}": np.array([v], np.int64) for n, v in (("a", 0), ("b", COUNT - 1), ("c", 0))}
            nodes.append(helper.make_node("Slice", [at, *(f"{value}{n}" for n in "abc")], [after]))
        elif what == "Cast":
            wide = TensorProto.INT64
            nodes.append(helper.make_node("Cast", [at], [after], to=wide))
        elif what == "Wrap":
            constants |= {f"{value}z": np.array(0, number_type), f"{value}s": np.array(sizes[-1], number_type)}
            nodes += [helper.make_node("Less", [at, f"{value}z"], [f"{after}n"]),
                      helper.make_node("Add", [at, f"{value}s"], [f"{after}w"]),
                      helper.make_node("Where", [f"{after}n", f"{after}w", at], [after])]  # fmt: skip
        else:
            nodes.append(helper.make_node("Identity", [at], [after]))
        at = after
    for number, size in enumerate(sizes):
        constants[f"table{number}"] = np.arange(size, dtype=np.float32) + 100 * number + 1
        read = at if number == len(sizes) - 1 else "ids"
        nodes.append(helper.make_node("Gather", [f"table{number}", read], [f"y{number}"]))
    ends = [helper.make_tensor_value_info(f"y{number}", 1, None) for number in range(len(sizes))]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("ids", kind, [COUNT])], ends,
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@compiled_examples(60, deadline=None)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=2),
    st.lists(STEPS, max_size=3),
    st.sampled_from(("int32", "int64")),
)
def test_what_is_inside_is_looked_up_and_all_else_is_refused(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], steps: list[tuple[str, int]], dtype: str
) -> None:
    import onnxruntime

    from tests.support.untuned import build_untuned

    path = tmp_path_factory.mktemp("bounds") / "m.onnx"
    model = model_of(sizes, steps, dtype)
    Path(path).write_bytes(model.SerializeToString())
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    executable = build_untuned(ModelRef("onnx", str(path), "m"))
    limits = np.iinfo(dtype)
    near = range(-max(sizes) - 5, max(sizes) + 6)
    for value in (limits.min, limits.min + 1, *near, limits.max - 1, limits.max):
        ids = np.full(COUNT, value, dtype)
        try:
            expected = session.run(None, {"ids": ids})
        except Exception:  # an index is out of range
            expected = None
        try:
            found = list(executable.run({"ids": ids}).values())
        except InputError:
            assert expected is None, (value, executable.inputs)
        else:
            assert expected is not None, (value, executable.inputs)
            for ours, theirs in zip(found, expected, strict=True):
                np.testing.assert_array_equal(ours, theirs)
