"""What only slices leave out is not computed, and what they read stays the same."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.support.graphs import Graph
from tests.support.networks import lowered_as_onnxruntime_computes, results_of

if TYPE_CHECKING:
    import tvm

    from kintune.compiler.graph.lower import Lowered
    from tests.support.networks import RunsProgram

pytestmark = pytest.mark.tvm

TOKENS, HEADS, WIDTH = 12, 2, 8
CHANNELS = HEADS * WIDTH


def _lower(
    g: Graph, results: list[str], cpu: tvm.target.Target, run_program: RunsProgram, folder: Path, said: object = ""
) -> Lowered:
    """The network, which was compared with onnxruntime."""
    shape = (1, TOKENS, CHANNELS)
    return lowered_as_onnxruntime_computes(g.save(folder / "model.onnx", shape, results), shape, cpu, run_program, said)


def _product(g: Graph, x: str, inputs: int = CHANNELS, outputs: int = CHANNELS) -> str:
    values = np.random.default_rng(len(g.nodes)).standard_normal((inputs, outputs)) / inputs**0.5
    return g("Add", g("MatMul", x, g.constant(values)), g.weight(outputs))


def _heads(g: Graph, x: str, order: tuple[int, ...]) -> str:
    return g("Transpose", g("Reshape", x, g.constant([1, TOKENS, HEADS, WIDTH], np.int64)), perm=list(order))


def _norm(g: Graph, x: str) -> str:
    return g("LayerNormalization", x, g.weight(CHANNELS), g.weight(CHANNELS), axis=-1)


def _layer(g: Graph, x: str) -> str:
    """A layer of a transformer, norms first."""
    normed = _norm(g, x)
    query, keys, values = (_heads(g, _product(g, normed), (0, 2, 1, 3)) for _ in range(3))
    scores = g("MatMul", query, g("Transpose", keys, perm=[0, 1, 3, 2]))
    shares = g("Softmax", g("Mul", scores, g.constant(WIDTH**-0.5)), axis=-1)
    found = g("Transpose", g("MatMul", shares, values), perm=[0, 2, 1, 3])
    joined = g("Reshape", found, g.constant([1, TOKENS, CHANNELS], np.int64))
    x = g("Add", x, _product(g, joined))
    wide = g("Tanh", _product(g, _norm(g, x), CHANNELS, 4 * CHANNELS))
    return g("Add", x, _product(g, wide, 4 * CHANNELS))


def _element(g: Graph, x: str, place: int = 0, axis: int = 1) -> str:
    return g("Gather", x, g.constant(place, np.int64), axis=axis)


def _part(g: Graph, x: str, begin: int, end: int, axis: int = 1) -> str:
    return g("Slice", x, *(g.constant([each], np.int64) for each in (begin, end, axis)))


def _rows(lowered: Lowered) -> list[int]:
    """Of how many rows each product is."""
    return [shape[-2] for shape in results_of(lowered, "matmul")]


@pytest.mark.parametrize("place", [0, 5, -1])
def test_the_last_layer_computes_one_token(
    place: int, cpu: tvm.target.Target, run_program: RunsProgram, tmp_path: Path
) -> None:
    g = Graph()
    last = _norm(g, _layer(g, _layer(g, "x")))
    lowered = _lower(g, [_product(g, _element(g, last, place), CHANNELS, 5)], cpu, run_program, tmp_path)
    rows = _rows(lowered)
    assert rows.count(1) == 5  # query, output of attention, both of the layer's others, and the classifier
    assert set(rows) == {1, TOKENS}


def test_several_slices_of_a_tensor_are_computed_together(
    cpu: tvm.target.Target, run_program: RunsProgram, tmp_path: Path
) -> None:
    """As a transformer with two tokens that are classified."""
    g = Graph()
    last = _product(g, "x")
    lowered = _lower(g, [_element(g, last, 1), _part(g, last, 2, 4)], cpu, run_program, tmp_path)
    assert _rows(lowered) == [3]


@pytest.mark.parametrize("why", ["a result", "read elsewhere", "most of it", "other axes", "steps", "softmax"])
def test_what_is_read_is_computed(why: str, cpu: tvm.target.Target, run_program: RunsProgram, tmp_path: Path) -> None:
    g = Graph()
    last = _product(g, "x")
    if why == "softmax":
        last = g("Softmax", last, axis=1)
    results = [_part(g, last, 0, 8)] if why == "most of it" else [_element(g, last)]
    if why == "steps":
        numbers = [g.constant([each], np.int64) for each in (0, TOKENS, 1, 6)]
        results = [g("Slice", last, *numbers)]
    results += {
        "a result": lambda: [last],
        "read elsewhere": lambda: [g("ReduceMean", last, axes=[1])],
        "other axes": lambda: [_element(g, last, 2, axis=2)],
    }.get(why, list)()
    assert _rows(_lower(g, results, cpu, run_program, tmp_path)) == [TOKENS]


class Drawn(NamedTuple):
    """Operators on a tensor of tokens, and what is read of the result: places, axes and lengths."""

    steps: tuple[str, ...]
    cuts: tuple[tuple[int, int, int], ...]


STEPS = ("product", "norm", "tanh", "bias", "mask", "residual", "layer", "softmax", "heads", "twice", "square")
drawings = st.builds(
    Drawn,
    st.lists(st.sampled_from(STEPS), min_size=1, max_size=5).map(tuple),
    st.lists(st.tuples(st.integers(0, 11), st.integers(1, 2), st.integers(0, 3)), min_size=1, max_size=3).map(tuple),
)


def _draw(g: Graph, drawn: Drawn) -> list[str]:
    x, before = "x", "x"
    makers: dict[str, Any] = {
        "product": lambda: _product(g, x),
        "norm": lambda: _norm(g, x),
        "tanh": lambda: g("Tanh", x),
        "bias": lambda: g("Mul", g.weight(CHANNELS), x),
        "mask": lambda: g("Mul", x, g.weight(TOKENS, 1)),
        "residual": lambda: g("Add", before, x),
        "layer": lambda: _layer(g, x),
        "softmax": lambda: g("Softmax", x, axis=1),
        "heads": lambda: g(
            "Reshape", g("Tanh", _heads(g, x, (0, 2, 1, 3))), g.constant([1, TOKENS, CHANNELS], np.int64)
        ),
        "twice": lambda: g("Concat", x, g("Neg", x), axis=2),
        "square": lambda: g("MatMul", g("MatMul", x, g("Transpose", x, perm=[0, 2, 1])), x),
    }
    for step in drawn.steps:
        before, x = x, makers[step]()
        if step == "twice":
            x = _product(g, x, 2 * CHANNELS)
        if step == "square":
            x = _norm(g, x)
    results = []
    for place, axis, length in drawn.cuts:
        most = (TOKENS, CHANNELS)[axis - 1]
        results.append(_part(g, x, place, min(place + length, most), axis) if length else _element(g, x, place, axis))
    return results


@settings(max_examples=15, derandomize=True, phases=[Phase.generate])
@given(drawn=drawings)
def test_whatever_is_cut_is_right(
    drawn: Drawn, cpu: tvm.target.Target, run_program: RunsProgram, tmp_path_factory: pytest.TempPathFactory
) -> None:
    g = Graph()
    results = _draw(g, drawn)
    _lower(g, results, cpu, run_program, tmp_path_factory.mktemp("rows"), drawn)
