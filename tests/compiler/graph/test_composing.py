"""Two linear maps of channels become one where that takes fewer products, and compute the same."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.support.graphs import Graph
from tests.support.networks import lowered_as_onnxruntime_computes, results_of

if TYPE_CHECKING:
    import tvm

    from tests.support.networks import RunsProgram

pytestmark = pytest.mark.tvm

TOKENS, CHANNELS = 12, 8


def _check(
    g: Graph, result: str, shape: tuple[int, ...], cpu: tvm.target.Target, run_program: RunsProgram, folder: Path
) -> int:
    """Compare with onnxruntime; returns how many products and convolutions are left."""
    path = g.save(folder / "model.onnx", shape, [result])
    lowered = lowered_as_onnxruntime_computes(path, shape, cpu, run_program)
    return len(results_of(lowered, "matmul", "conv2d"))


def _product(g: Graph, x: str, inputs: int, outputs: int) -> str:
    return g("MatMul", x, g.weight(inputs, outputs))


def test_products_with_a_wide_tensor_between_them_are_one(
    cpu: tvm.target.Target, run_program: RunsProgram, tmp_path: Path
) -> None:
    g = Graph()
    x = g("Add", _product(g, "x", CHANNELS, 64), g.weight(64))
    result = g("Relu", g("Add", _product(g, x, 64, CHANNELS), g.weight(CHANNELS)))
    assert _check(g, result, (1, TOKENS, CHANNELS), cpu, run_program, tmp_path) == 1


def test_three_products_are_one(cpu: tvm.target.Target, run_program: RunsProgram, tmp_path: Path) -> None:
    g = Graph()
    x = _product(g, _product(g, _product(g, "x", CHANNELS, 64), 64, 64), 64, CHANNELS)
    assert _check(g, g("Relu", x), (1, TOKENS, CHANNELS), cpu, run_program, tmp_path) <= 2


def test_tokens_become_an_image_between_two_maps(
    cpu: tvm.target.Target, run_program: RunsProgram, tmp_path: Path
) -> None:
    """As in the head of SegFormer."""
    g = Graph()
    x = g("Transpose", g("Add", _product(g, "x", CHANNELS, 64), g.weight(64)), perm=[0, 2, 1])
    image = g("Reshape", x, g.constant([1, 64, 3, 4], np.int64))
    result = g("Relu", g("Add", g.conv(image, 64, 24, 1), g.weight(1, 24, 1, 1)))
    assert _check(g, result, (1, TOKENS, CHANNELS), cpu, run_program, tmp_path) == 1


def test_maps_are_multiplied_once_before_they_are_enlarged(
    cpu: tvm.target.Target, run_program: RunsProgram, tmp_path: Path
) -> None:
    g = Graph()
    tokens = g("Transpose", g("Add", _product(g, "x", CHANNELS, 64), g.weight(64)), perm=[0, 2, 1])
    image = g("Reshape", tokens, g.constant([1, 64, 3, 4], np.int64))
    large = g("Resize", image, g.constant([]), g.constant([1, 1, 2, 2]), mode="linear")
    result = g("Relu", g.conv(large, 64, 24, 1))
    assert _check(g, result, (1, TOKENS, CHANNELS), cpu, run_program, tmp_path) == 1


def test_two_convolutions_are_one(cpu: tvm.target.Target, run_program: RunsProgram, tmp_path: Path) -> None:
    g = Graph()
    result = g("Relu", g.conv(g("Add", g.conv("x", CHANNELS, 64, 1), g.weight(64, 1, 1)), 64, 24, 1))
    assert _check(g, result, (1, CHANNELS, 4, 4), cpu, run_program, tmp_path) == 1


@pytest.mark.parametrize("why", ["narrow", "activation", "read elsewhere", "strides", "by token", "mixed", "too large"])
def test_what_is_not_one_map_stays(why: str, cpu: tvm.target.Target, run_program: RunsProgram, tmp_path: Path) -> None:
    g = Graph()
    wide = 4 if why == "narrow" else 64
    x = _product(g, "x", CHANNELS, wide)
    if why == "activation":
        x = g("Relu", x)
    elif why == "by token":
        x = g("Add", x, g.weight(TOKENS, wide))
    elif why == "mixed":
        x = g("Reshape", g("Transpose", x, perm=[0, 2, 1]), g.constant([1, TOKENS, wide], np.int64))
    elif why == "strides":
        image = g("Reshape", g("Transpose", x, perm=[0, 2, 1]), g.constant([1, wide, 3, 4], np.int64))
        result = g("Relu", g.conv(image, wide, CHANNELS, 1, strides=[2, 2]))
    if why == "too large":
        x = g("MatMul", "x", g.constant(np.full((CHANNELS, wide), 1e30)))
        result = g("MatMul", x, g.constant(np.full((wide, CHANNELS), 1e30)))  # infinite, of either sign
    elif why != "strides":
        result = g("Relu", _product(g, x, wide, CHANNELS))
    if why == "read elsewhere":
        result = g("Add", result, g("ReduceMean", x, axes=[2]))
    assert _check(g, result, (1, TOKENS, CHANNELS), cpu, run_program, tmp_path) == 2


class Drawn(NamedTuple):
    """Channels before, between and after two maps; whether there are offsets and moves; and which maps they are."""

    before: int
    between: int
    after: int
    offset: str
    image: bool


channels = st.sampled_from((1, 3, 8, 32))
drawings = st.builds(
    Drawn, channels, channels, channels, st.sampled_from(("", "channels", "one", "tokens", "all")), st.booleans()
)


@settings(max_examples=12, derandomize=True, phases=[Phase.generate])
@given(drawn=drawings)
def test_whatever_is_composed_is_right(
    drawn: Drawn, cpu: tvm.target.Target, run_program: RunsProgram, tmp_path_factory: pytest.TempPathFactory
) -> None:
    g = Graph()
    x = _product(g, "x", drawn.before, drawn.between)
    if drawn.offset:
        shapes = {"channels": (drawn.between,), "one": (1,), "tokens": (TOKENS, 1), "all": (TOKENS, drawn.between)}
        x = g("Add", x, g.weight(*shapes[drawn.offset]))
    if drawn.image:
        x = g("Transpose", x, perm=[0, 2, 1])
        x = g("Reshape", x, g.constant([1, drawn.between, 3, 4], np.int64))
        x = g.conv(x, drawn.between, drawn.after, 1)
    else:
        x = _product(g, x, drawn.between, drawn.after)
    folder = tmp_path_factory.mktemp("composing")
    _check(g, g("Tanh", x), (1, TOKENS, drawn.before), cpu, run_program, folder)
