from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from onnx import TensorProto, helper

from kintune.core.model import Constant, ModelRef
from kintune.errors import InputError, ModelError, ShapeError
from kintune.models.constants import (
    constant_of,
    constant_values,
    fit_constant,
    parse_constant,
    parse_constants,
    store_constant,
)
from kintune.models.onnx import read

NUMBER = st.floats(allow_nan=False) | st.integers(-(2**62), 2**62) | st.booleans()


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("sizes=1,3,8,8", [1, 3, 8, 8]),
        ("sizes=[1, 3,8 , 8]", [1, 3, 8, 8]),
        ("sizes=[7]", [7]),
        ("sizes=7", 7),
        ("sizes=[[1, 2], [3, 4]]", [[1, 2], [3, 4]]),
        ("sizes=[]", np.zeros(0, np.int64)),
        ("sizes=true", True),
        ("sizes=False,true", [False, True]),
        ("sizes=-1.5e-3", -1.5e-3),
        ("sizes=inf,-inf", [np.inf, -np.inf]),
        ("sizes=18446744073709551615", np.uint64(2**64 - 1)),
    ],
)
def test_values_are_read_from_text(text: str, values: Any) -> None:
    name, constant = parse_constant(text)
    found, wanted = constant_values(constant), np.asarray(values)
    assert name == "sizes"
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    "text",
    ["sizes", "=1", "sizes=", "sizes=1,", "sizes=,1", "sizes=[1", "sizes=1]", "sizes=[1]2", "sizes=one", "sizes=1_0",
     "sizes=[[1],[2,3]]", "sizes=1,true", "sizes=" + "[" * 40 + "1" + "]" * 40, "sizes=missing.npy",
     "sizes=99999999999999999999"],
)  # fmt: skip
def test_what_is_no_value_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(InputError) as raised:
        parse_constant(text)
    assert "sizes" in str(raised.value) or "--constant" in str(raised.value) or "missing.npy" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_files_that_hold_no_array_are_refused_in_one_line(tmp_path: Path) -> None:
    vast = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776, 1000), }"
    for name, content in (
        ("archive", b"PK\x03\x04 and no more"),
        ("vast", b"\x93NUMPY\x01\x00" + len(vast).to_bytes(2, "little") + vast),
        ("bracket", b"\x93NUMPY\x01\x00\x50\x00" + b"(" * 80),
    ):
        (tmp_path / f"{name}.npy").write_bytes(content)
    os.mkfifo(tmp_path / "pipe.npy")
    for name in ("archive", "vast", "bracket", "pipe"):
        with pytest.raises(InputError, match=f"{name}.npy: (not an .npy file|there is not enough memory)") as raised:
            parse_constant(f"sizes={tmp_path / name}.npy")
        assert "\n" not in str(raised.value)


def test_one_input_has_one_value() -> None:
    assert set(parse_constants(["a=1,2", "b=true", "a=[1,2]"])) == {"a", "b"}
    with pytest.raises(InputError, match="a was already given another value"):
        parse_constants(["a=1", "a=2"])


@given(arrays.arrays(st.sampled_from([np.int32, np.float32, np.bool_]), arrays.array_shapes(min_dims=0, max_dims=3)))
def test_a_value_is_the_same_however_it_was_given(values: np.ndarray[Any, Any]) -> None:
    constant = constant_of("x", values)
    assert msgspec.json.decode(msgspec.json.encode(constant), type=Constant) == constant
    fitted = fit_constant("model", "x", constant, values.dtype, values.shape)
    assert fitted.dtype == values.dtype
    np.testing.assert_array_equal(fitted, values)
    if values.dtype.kind != "f":
        assert parse_constant(f"x={values.tolist()}") == ("x", constant)


def test_a_file_is_read_and_kept_by_name_when_it_is_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("small.npy", np.arange(4, dtype=np.int32))
    assert parse_constant("x=small.npy")[1] == constant_of("x", [0, 1, 2, 3])
    typed = store_constant("x", np.arange(4, dtype=np.int32), typed=True)
    assert (typed.dtype, constant_values(typed).dtype.name) == ("int32", "int32")
    large = np.arange(100_000, dtype=np.float32)
    np.save("large.npy", large)
    constant = parse_constant("x=large.npy")[1]
    assert (constant.path, constant.data) == (str(tmp_path / "large.npy"), b"")
    np.testing.assert_array_equal(constant_values(constant), large)
    np.save("large.npy", large + 1)
    with pytest.raises(InputError, match="has changed"):
        constant_values(constant)
    (tmp_path / "no.npy").write_bytes(b"nothing")
    np.save("text.npy", np.array(["a"]))
    for name in ("no", "text"):
        with pytest.raises(InputError) as caught:
            parse_constant(f"x={name}.npy")
        assert "pickle" not in str(caught.value)  # numpy would advise to load it unsafely


@pytest.mark.parametrize(
    ("given_", "dtype", "shape"),
    [
        ([300], "uint8", (1,)), ([-1], "uint64", (1,)), ([1.0], "int64", (1,)), ([True], "int64", (1,)),
        ([2], "bool", (1,)), ([1e300], "float32", (1,)), ([1, 2], "int64", (3,)), ([1, 2], "int64", (2, 1)),
        ([[1]], "int64", (1,)), (1, "int64", (2,)),
    ],
)  # fmt: skip
def test_a_value_that_does_not_fit_is_refused(given_: Any, dtype: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(
        ModelError,
        match=r"m: the constant x has the shape .*, but the model's input has|does not fit|too large",
    ):
        fit_constant("m", "x", constant_of("x", given_), np.dtype(dtype), shape)


@pytest.mark.parametrize(
    ("given_", "dtype", "shape", "wanted"),
    [
        (3, "int32", (1,), np.array([3], np.int32)), ([3], "int64", (), np.array(3)),
        ([1, 0], "bool", ("n",), np.array([True, False])), (0.1, "float32", (), np.float32(0.1)),
        ([1, 2], "float64", None, np.array([1.0, 2.0])), ([], "int64", (0,), np.zeros(0, np.int64)),
    ],
)  # fmt: skip
def test_values_take_the_inputs_type_and_shape(given_: Any, dtype: str, shape: Any, wanted: Any) -> None:
    fitted = fit_constant("m", "x", constant_of("x", given_), np.dtype(dtype), shape)
    assert (fitted.dtype, fitted.shape) == (np.asarray(wanted).dtype, np.asarray(wanted).shape)
    np.testing.assert_array_equal(fitted, wanted)


def reshape_model(samples: Any) -> Path:
    """y = reshape(x, sizes) of x (n, 12), where sizes is an input."""
    nodes = [helper.make_node("Reshape", ["x", "sizes"], ["y"])]
    inputs = [("x", TensorProto.FLOAT, ["n", 12]), ("sizes", TensorProto.INT64, ["r"])]
    path: Path = samples.write(samples.make_model(nodes, inputs, [("y", TensorProto.FLOAT, None)]))
    return path


def test_a_constant_input_vanishes_and_is_part_of_the_digest(samples: Any) -> None:
    path = reshape_model(samples)
    model = read(path, {"x": (2, 12)}, {"sizes": constant_of("sizes", [2, 3, 4])})
    assert list(model.inputs) == ["x"]
    assert [value.name for value in model.proto.graph.input] == ["x"]
    assert model.constants["sizes"].tolist() == [2, 3, 4]
    other = read(path, {"x": (2, 12)}, {"sizes": constant_of("sizes", [2, 4, 3])})
    again = read(path, {"x": (2, 12)}, {"sizes": parse_constant("sizes=2,3,4")[1]})
    assert other.digest != model.digest == again.digest


def test_what_contradicts_the_model_is_named(samples: Any) -> None:
    path = reshape_model(samples)
    shapes = {"x": (2, 12)}
    with pytest.raises(ModelError, match="a constant is given for 'size', but the model's inputs are x, sizes"):
        read(path, shapes, {"size": constant_of("size", 1)})
    with pytest.raises(ModelError, match="the constant sizes has the shape 1x3, but the model's input has r"):
        read(path, shapes, {"sizes": constant_of("sizes", [[2, 3, 4]])})
    with pytest.raises(ModelError, match=r"does not fit the model's input, whose elements are int64"):
        read(path, shapes, {"sizes": constant_of("sizes", [2.5, 3])})
    with pytest.raises(ShapeError, match="contradicts its constant"):
        read(path, {**shapes, "sizes": (3,)}, {"sizes": constant_of("sizes", [2, 12])})


def test_a_ref_without_constants_reads_as_before() -> None:
    old = b'{"kind":"onnx","source":"m","name":"m","shapes":{},"options":{}}'
    assert msgspec.json.decode(old, type=ModelRef) == ModelRef("onnx", "m", "m")


@pytest.mark.tvm
def test_branches_sizes_and_axes_are_folded_and_run(samples: Any, run_module: Any, run_reference: Any) -> None:
    from kintune.models.importer import load

    def branch(name: str, operator: str) -> Any:
        node = helper.make_node(operator, ["x"], [name])
        return helper.make_graph([node], name, [], [helper.make_tensor_value_info(name, TensorProto.FLOAT, None)])

    nodes = [
        helper.make_node("If", ["flag"], ["chosen"], then_branch=branch("a", "Relu"), else_branch=branch("b", "Neg")),
        helper.make_node("Resize", ["chosen", "", "", "sizes"], ["resized"], mode="nearest"),
        helper.make_node("ReduceSum", ["resized", "axes"], ["y"], keepdims=0),
    ]
    inputs = [
        ("flag", TensorProto.BOOL, []),
        ("x", TensorProto.FLOAT, [1, 2, 4, 4]),
        ("sizes", TensorProto.INT64, [4]),
        ("axes", TensorProto.INT64, [1]),
    ]
    path = samples.write(samples.make_model(nodes, inputs, [("y", TensorProto.FLOAT, None)], opset=18))
    feeds = {"flag": np.array(False), "sizes": np.array([1, 2, 8, 8]), "axes": np.array([-1])}
    constants = parse_constants(["flag=false", "sizes=1,2,8,8", "axes=-1"])
    model = load(ModelRef("onnx", str(path), "m", constants=constants))
    assert [tensor.name for tensor in model.inputs] == ["x"]
    assert {name: constant_values(one).tolist() for name, one in model.constants.items()} == {
        name: array.tolist() for name, array in feeds.items()
    }
    x = np.random.default_rng(0).standard_normal((1, 2, 4, 4), np.float32)
    (wanted,) = run_reference(str(path), {"x": x, **feeds})
    (found,) = run_module(model, {"x": x})
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
