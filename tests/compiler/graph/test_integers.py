"""Quantised networks are computed on integers, within one step of what onnxruntime computes."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import compiled_examples
from tests.support.quantised import (
    Layer,
    Matrices,
    lowered,
    run_lowered,
    run_onnxruntime,
    write_layer,
    write_matrices,
    written_kernels,
)

if TYPE_CHECKING:
    from kintune.compiler.graph.lower import Lowered

pytestmark = pytest.mark.tvm

CPU = "cascadelake"


def agree(layer: Layer, cpu: str = "") -> Lowered:
    """Returns the layer's network, whose result agrees with that of onnxruntime."""
    with tempfile.TemporaryDirectory() as folder:
        written = write_layer(layer, Path(folder))
        network, target = lowered(written, cpu)
        found, expected = run_lowered(network, target, written, {}), run_onnxruntime(written)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    steps = abs(found.astype(np.float64) - expected.astype(np.float64))
    assert steps.max(initial=0) <= written.step * 1.001
    assert (steps > written.step * 0.5).mean() <= (0 if layer.form.startswith("dynamic") else 0.02)
    return network


def kernels(layer: Layer, cpu: str = CPU) -> str:
    with tempfile.TemporaryDirectory() as folder:
        return "\n".join(written_kernels(lowered(write_layer(layer, Path(folder)), cpu)[0]))


UNSIGNED: tuple[Layer, ...] = (
    Layer(signed_weights=False, weight_point=3),
    Layer(signed_weights=False, weight_point=200, spread=True, points=(7, 100), after="residual"),
    Layer(kernel=None, signed_weights=False, weight_point=40, spread=True, points=(100, 128)),
    Layer("qlinear", signed_weights=False, weight_point=255, points=(10, 100)),
    Layer("qlinear", kernel=None, signed_weights=False, weight_point=9, spread=True, points=(10, 100)),
    Layer("integer", signed_weights=False, weight_point=178, points=(10, 0)),
    Layer("integer", signed=True, signed_weights=False, weight_point=0, points=(-10, 0), strides=(2, 1)),
    Layer("integer", weight_point=100, points=(10, 0), given=True),
    Layer("integer", signed=True, signed_weights=False, weight_point=20, points=(-7, 0), given=True),
    Layer("integer", kernel=None, signed=True, signed_weights=False, weight_point=5, spread=True, points=(3, 0)),
    Layer("integer", kernel=None, signed_weights=False, weight_point=5, spread=True, points=(3, 0), given=True),
    Layer("integer", height=40, kernel=(5,), signed_weights=False, weight_point=7, points=(90, 0)),
    Layer("integer", height=40, kernel=(40,), pads=(9, 0, 3, 0), signed_weights=False, weight_point=7, points=(90, 0)),
    Layer("dynamic", signed_weights=False, weight_point=178, pads=(0, 1, 2, 3), dilations=(2, 1)),
    Layer("dynamic", height=40, kernel=(5,), signed_weights=False, weight_point=90, strides=(2, 1)),
    Layer("dynamic", kernel=None, signed_weights=False, weight_point=178, spread=True),
    Layer("dynamic_qdq", signed_weights=False, weight_point=178, spread=True),
    Layer("dynamic_qdq", kernel=None),
    Layer("integer", groups=4, signed_weights=False, weight_point=1, points=(10, 0)),
    Layer("dynamic", channels=32, filters=32, groups=32, signed_weights=False, weight_point=250),
    Layer("integer", channels=640, groups=2, filters=4, signed_weights=False, weight_point=3, points=(255, 0)),
)
"""Layers whose weights, less their zero point, are no signed bytes, or whose zero points are computed."""

GATE = Layer(height=1, width=1, kernel=(1, 1), pads=(0, 0, 0, 0), points=(5, 100), after="gate")

EXAMPLES: tuple[Layer, ...] = (
    GATE,
    Layer(),
    Layer(points=(3, 120), after="relu"),
    Layer(signed=True, points=(-128, 5), after="relu"),
    Layer(signed=True, points=(7, -3), after="residual", pads=(0, 1, 2, 0)),
    Layer(points=(9, 9), after="hard", strides=(2, 1), dilations=(1, 2), channels=3),
    Layer(channels=1, filters=1, points=(40, 7), strides=(2, 2), pads=(2, 3, 4, 5)),
    Layer(groups=8, filters=16, points=(4, 10), after="relu"),
    Layer(signed_weights=False, weight_point=128, points=(1, 2)),
    Layer(kernel=None, points=(100, 128)),
    Layer(kernel=None, signed=True, points=(-7, 0), after="relu"),
    Layer("qlinear", points=(10, 100)),
    Layer("qlinear", signed=True, points=(-10, 7), groups=4, per_channel=False),
    Layer("qlinear", kernel=None, points=(10, 100)),
    Layer("integer", points=(10, 0)),
    Layer("integer", kernel=None, signed=True, points=(10, 0)),
    Layer("dynamic", kernel=None),
    Layer("dynamic"),
    Layer("integer", groups=4, points=(10, 0)),
    Layer("dynamic", groups=8),
    Layer(channels=64, height=1000, kernel=(3,), points=(3, 120), after="relu"),
    Layer("qlinear", height=23, kernel=(4,), strides=(2, 1), points=(10, 100)),
    Layer(height=23, width=1, kernel=(5, 1), pads=(2, 0, 2, 0), points=(5, 9)),
)


@pytest.mark.parametrize("layer", [*EXAMPLES, *UNSIGNED])
def test_within_one_step_of_onnxruntime(layer: Layer) -> None:
    agree(layer)


def _layers() -> st.SearchStrategy[Layer]:
    def whole(layer: Layer) -> Layer:
        low = -128 if layer.signed else 0
        points = tuple(min(max(point + low, low), low + 255) for point in layer.points)
        groups = layer.groups if layer.kernel is not None else 1
        signed_weights = layer.signed_weights or (layer.signed and layer.form == "qlinear")  # as onnxruntime takes them
        return msgspec.structs.replace(
            layer,
            points=points,
            signed_weights=signed_weights,
            weight_point=layer.weight_point - 128 * signed_weights,
            groups=groups,
            channels=layer.channels * groups,
            filters=layer.filters * groups,
        )

    return st.builds(
        Layer,
        form=st.sampled_from(("qdq", "qdq", "qlinear", "integer", "dynamic")),
        channels=st.integers(1, 9),
        filters=st.integers(1, 20),
        height=st.integers(1, 9),
        width=st.integers(1, 9),
        kernel=st.sampled_from((None, (1, 1), (3, 3), (1, 3), (2, 2))),
        strides=st.sampled_from(((1, 1), (2, 2), (1, 2))),
        dilations=st.sampled_from(((1, 1), (1, 1), (2, 1), (1, 2))),
        pads=st.sampled_from(((1, 1, 1, 1), (2, 2, 2, 2), (4, 4, 4, 4), (2, 3, 4, 5))),
        groups=st.sampled_from((1, 1, 1, 2, 8)),
        signed=st.booleans(),
        signed_weights=st.booleans(),
        points=st.tuples(st.integers(0, 255), st.integers(0, 255)),
        weight_point=st.integers(0, 255),
        spread=st.booleans(),
        given=st.booleans(),
        per_channel=st.booleans(),
        bias=st.booleans(),
        after=st.sampled_from(("", "relu", "hard", "residual")),
        seed=st.integers(0, 99),
    ).map(whole)


@compiled_examples(25, deadline=None)
@given(_layers())
def test_any_layer_is_within_one_step(layer: Layer) -> None:
    agree(layer)


@pytest.mark.parametrize("layer", [*EXAMPLES, *UNSIGNED])
def test_bytes_are_what_is_multiplied(layer: Layer) -> None:
    assert ("kintune.bytes" in kernels(layer)) == (layer.groups == 1)


@pytest.mark.parametrize(
    "layer", [each for each in (*EXAMPLES, *UNSIGNED) if "qdq" not in each.form and not each.given]
)
def test_without_products_of_bytes_sums_are_exact_in_float32(layer: Layer) -> None:
    written = [text for text in written_kernels(agree(layer, "core-avx2")) if "conv" in text or "matmul" in text]
    assert any("float32" in text for text in written)
    assert not any(re.search(r'(matmul|conv\d?d?\w*) = T.alloc_buffer\([^\n]*"int32"', text) for text in written)


MATRICES = (
    Matrices((5, 70), (70, 33), points=(3, 7)),
    Matrices((2, 3, 5, 70), (2, 3, 70, 33), (False, True), points=(3, 128)),
    Matrices((2, 3, 5, 71), (71, 33), (True, False), points=(128, 9), given=True),
    Matrices((2, 9, 40), (2, 40, 8), (True, True), points=(0, 255, 3, 77), given=True),
    Matrices((3, 5, 300), (1, 300, 33), points=(3, 9)),
    Matrices((1, 5, 300), (3, 300, 33), points=(3, 9)),
    Matrices((2, 5, 300), (2, 300, 17), points=(3, 9), constant=True),
    Matrices((300,), (300, 17), points=(3, 9), constant=True),
)


@pytest.mark.parametrize("cpu", ["", "core-avx2"])
@pytest.mark.parametrize("product", MATRICES)
def test_products_of_computed_integers_are_exact(product: Matrices, cpu: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        written = write_matrices(product, Path(folder))
        network, target = lowered(written, cpu)
        found, expected = run_lowered(network, target, written, {}), run_onnxruntime(written)
        texts = written_kernels(network if cpu else lowered(written, CPU)[0])
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found, expected)
    in_bytes = not cpu and not product.constant and product.left[:-2] in (product.right[:-2], (2, 3), (3,))
    assert any("kintune.bytes" in text for text in texts) == in_bytes
    (multiplied, *_) = [text for text in texts if "matmul" in text]
    assert in_bytes or re.search(r"matmul\w*\[[^\n]*float32|matmul\w* = T.sblock_alloc_buffer\([^\n\"]*\)", multiplied)


def test_a_convolution_is_one_kernel_with_its_borders_and_what_follows() -> None:
    for after in ("relu", "residual"):
        with tempfile.TemporaryDirectory() as folder:
            written = write_layer(Layer(points=(5, 5), after=after), Path(folder))
            network, _ = lowered(written, CPU)
        (kernel,) = [each for each in network.workloads if "kintune.bytes" in str(each.module.script())]
        assert "pad_temp" in str(kernel.module.script())
        assert kernel.subgraph(tunable=True).narrowest == "int8"


@pytest.mark.parametrize("after", ["relu", "residual"])
def test_what_follows_a_convolution_along_one_axis_is_in_its_kernel(after: str) -> None:
    """Nothing but that and the first kernel, which quantises the input, knows bytes."""
    with tempfile.TemporaryDirectory() as folder:
        layer = Layer(kernel=(3,), points=(5, 5), after=after)
        found = written_kernels(lowered(write_layer(layer, Path(folder)), CPU)[0])
    assert sum("uint8" in text for text in found) == 2


@pytest.mark.parametrize("form", ["qdq", "qlinear", "integer", "dynamic"])
def test_a_depthwise_convolution_has_its_program_and_reads_no_copy_with_borders(form: str) -> None:
    from kintune.compiler.programs.depthwise import DepthwiseConvolution

    layer = Layer(form, channels=32, filters=32, groups=32, height=16, width=16, points=(9, 0), after="relu")
    with tempfile.TemporaryDirectory() as folder:
        network, target = lowered(write_layer(layer, Path(folder)), CPU)
    (kernel,) = [each.module for each in network.workloads if DepthwiseConvolution().variants(each.module, target)]
    assert tuple(map(int, kernel["main"].params[0].shape)) == (1, 16, 16, 32)


@pytest.mark.parametrize(("channels", "held"), [(160, True), (320, False)])
def test_groups_are_in_float32_where_that_holds_their_sums(channels: int, held: bool) -> None:
    """255 times the sizes of a filter's weights, 64 on average, is below 2^24 for 720 of them, and not for 1440."""
    layer = Layer(channels=channels, filters=4, groups=2)
    with tempfile.TemporaryDirectory() as folder:
        network, _ = lowered(write_layer(layer, Path(folder)), CPU)
    assert sum(each.occurrences for each in network.workloads if "conv" in each.name) == (1 if held else 2)
    agree(layer)


def test_a_kernel_that_multiplies_bytes_has_no_larger_result_than_its_sums() -> None:
    """No program of bytes computes one, and a sketch of the compiler's could not be compiled."""
    with tempfile.TemporaryDirectory() as folder:
        network, _ = lowered(write_layer(GATE, Path(folder)), CPU)
    (kernel,) = [each.module["main"] for each in network.workloads if "kintune.bytes" in str(each.module.script())]
    assert tuple(map(int, kernel.params[-1].shape)) == (1, 1, 1, GATE.filters)


def test_a_cpu_without_products_of_bytes_computes_in_float32() -> None:
    assert "kintune.bytes" not in kernels(Layer(), "core-avx2")


@pytest.mark.parametrize("groups", [1, 8])
def test_a_cast_image_of_a_network_in_float32_is_no_product_of_bytes(groups: int) -> None:
    """It would lose the programs for float32."""
    from tvm import relax

    from kintune.compiler.graph.lower import lower
    from tests.support.targets import cpu_target

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 8, 12, 12), "uint8"))
    weights = np.random.default_rng(1).standard_normal((8, 8 // groups, 3, 3), np.float32)
    with builder.function("main", [x]):
        with builder.dataflow():
            cast = builder.emit(relax.op.astype(x, "float32"))
            found = builder.emit_output(relax.op.nn.conv2d(cast, relax.const(weights), groups=groups))
        builder.emit_func_output(found)
    network = lower(builder.get(), cpu_target(CPU))
    text = "\n".join(written_kernels(network))
    assert "kintune.bytes" not in text
    assert "conv2d_bytes" not in text
    assert {each.subgraph(tunable=True).narrowest for each in network.workloads} == {"fp32"}
