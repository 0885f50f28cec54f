"""Norms as exporters spell them, and what is almost one: the same numbers as onnxruntime's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import onnx
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st

from tests.support.examples import compiled_examples
from tests.support.extreme_runs import extreme_difference
from tests.support.graphs import Graph, run_onnxruntime

if TYPE_CHECKING:
    import tvm

    from tests.support.networks import RunsProgram

pytestmark = pytest.mark.tvm

SHAPE = (2, 6, 5, 8)
NEAR_MISSES = (
    "other axes of the variance", "other operand", "epsilon outside", "difference twice", "scale over rows",
    "variance of another tensor",
)  # fmt: skip


class Spelling(NamedTuple):
    """How a norm is spelled: over which axes, with which operators, and what makes it none (`miss`)."""

    axes: tuple[int, ...]
    centred: bool
    square: str
    root: str
    scale: str
    offset: bool
    first: bool
    miss: str


spellings = st.builds(
    Spelling,
    st.sampled_from(((3,), (1,), (2, 3), (1, 2, 3))),
    st.booleans(),
    st.sampled_from(("Mul", "Pow")),
    st.sampled_from(("Div", "Reciprocal", "Pow", "half")),
    st.sampled_from(("none", "axes", "channels", "one")),
    st.booleans(),
    st.booleans(),
    st.sampled_from(("", "", "", *NEAR_MISSES)),
)


def _spell(g: Graph, x: str, spelling: Spelling) -> str:
    other = tuple(axis for axis in (1, 2, 3) if axis not in spelling.axes)[:1] or (2,)
    axes = list(spelling.axes)

    def mean(tensor: str, over: list[int]) -> str:
        return g("ReduceMean", tensor, axes=over, keepdims=1)

    centred = g("Sub", x, mean(x, axes)) if spelling.centred else x
    measured = g("Mul", centred, g.constant(1.5)) if spelling.miss == "variance of another tensor" else centred
    square = g("Mul", measured, measured) if spelling.square == "Mul" else g("Pow", measured, g.constant(2.0))
    variance = mean(square, list(other) if spelling.miss == "other axes of the variance" else axes)
    epsilon = g.constant(1e-2)
    inside = spelling.miss != "epsilon outside"
    summed = g("Add", variance, epsilon) if inside else variance
    if spelling.root == "Pow":
        inverse, root = g("Pow", summed, g.constant(-0.5)), ""
    else:
        inverse = ""
        root = g("Pow", summed, g.constant(0.5)) if spelling.root == "half" else g("Sqrt", summed)
        root = root if inside else g("Add", root, epsilon)
        inverse = g("Reciprocal", root) if spelling.root == "Reciprocal" else ""
    dividend = g("Mul", x, g.constant(2.0)) if spelling.miss == "other operand" else centred
    if spelling.miss == "difference twice" and spelling.centred:
        dividend = g("Sub", centred, mean(x, axes))
    if inverse:
        found = g("Mul", *((inverse, dividend) if spelling.first else (dividend, inverse)))
    else:
        found = g("Div", dividend, root)
    kept = {"axes": spelling.axes, "channels": (1,), "one": ()}
    if spelling.miss == "scale over rows":
        kept = dict.fromkeys(kept, (2,))
    if spelling.scale != "none":
        shape = [extent if axis in kept[spelling.scale] else 1 for axis, extent in enumerate(SHAPE)]
        scale = g.weight(*shape)
        found = g("Mul", *((scale, found) if spelling.first else (found, scale)))
        if spelling.offset:
            found = g("Add", found, g.weight(*shape))
    return g("Relu", found)


@compiled_examples(4, derandomize=True, phases=[Phase.generate])
@given(drawn=st.lists(spellings, min_size=8, max_size=8))
def test_norms_compute_what_onnxruntime_does(
    drawn: list[Spelling], cpu: tvm.target.Target, run_program: RunsProgram, tmp_path_factory: pytest.TempPathFactory
) -> None:
    from kintune.compiler.graph.assemble import assemble
    from kintune.compiler.graph.lower import lower
    from kintune.models.importer import load
    from kintune.models.ref import parse_ref

    g = Graph()
    results = [_spell(g, "x", spelling) for spelling in drawn]
    path = g.save(tmp_path_factory.mktemp("norms") / "model.onnx", SHAPE, results)
    x = np.random.default_rng(1).standard_normal(SHAPE, dtype=np.float32) + 3
    found = run_program(assemble(lower(load(parse_ref(str(path))).module, cpu), {}, cpu), x)
    for one, other, spelling in zip(found, run_onnxruntime(path, x), drawn, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4, err_msg=str(spelling))


@compiled_examples(4, derandomize=True, phases=[Phase.generate])
@given(drawn=st.lists(spellings, min_size=4, max_size=4))
def test_norms_keep_extremes(drawn: list[Spelling], tmp_path_factory: pytest.TempPathFactory) -> None:
    from kintune.models.importer import load
    from kintune.models.ref import parse_ref
    from kintune_lab.fuzz.compiling import Compiler

    g = Graph()
    results = [_spell(g, "x", spelling) for spelling in drawn]
    path = g.save(tmp_path_factory.mktemp("norms") / "model.onnx", SHAPE, results)
    executable = Compiler().compile(load(parse_ref(str(path))))
    x = np.random.default_rng(1).standard_normal(SHAPE, dtype=np.float32)
    assert extreme_difference(executable, onnx.load(path), {"x": x}, 1e-3, 1e-3) == "", drawn


def _recognised(g: Graph, shape: tuple[int, ...], result: str, folder: Path) -> list[str]:
    """The operators that are left when norms are recognised."""
    import tvm
    from tvm import relax

    from kintune.compiler.graph.fold import FoldTensors
    from kintune.compiler.graph.norms import RecogniseNorms
    from kintune.compiler.graph.rewriting import operator_of
    from kintune.models.importer import load
    from kintune.models.ref import parse_ref

    path = g.save(folder / "model.onnx", shape, [result])
    passes = [
        FoldTensors(),
        relax.transform.FoldConstant(),
        relax.transform.CanonicalizeBindings(),
        RecogniseNorms(),
        relax.transform.DeadCodeElimination(),
    ]
    module = tvm.transform.Sequential(passes)(load(parse_ref(str(path))).module)
    found = []
    relax.analysis.post_order_visit(module["main"], lambda part: found.append(operator_of(part)))
    return [name.removeprefix("relax.").removeprefix("nn.") for name in found if name]


@pytest.mark.parametrize("root", ["Div", "Reciprocal", "Pow", "half"])
@pytest.mark.parametrize(
    ("axes", "centred", "scale", "name"),
    [
        ((3,), True, "axes", "layer_norm"),
        ((1,), True, "channels", "layer_norm"),
        ((2, 3), True, "channels", "instance_norm"),
        ((3,), False, "axes", "rms_norm"),
        ((3,), False, "none", "rms_norm"),
    ],
)
def test_a_spelled_norm_is_one_operator(
    root: str, axes: tuple[int, ...], centred: bool, scale: str, name: str, tmp_path: Path
) -> None:
    g = Graph()
    spelling = Spelling(axes, centred, "Pow", root, scale, centred, True, "")
    assert _recognised(g, SHAPE, _spell(g, "x", spelling), tmp_path) == [name, "relu"]


@pytest.mark.parametrize("miss", NEAR_MISSES[1:4])
def test_what_is_almost_a_norm_is_none(miss: str, tmp_path: Path) -> None:
    g = Graph()
    spelling = Spelling((3,), True, "Mul", "Div", "axes", True, True, miss)
    assert not any("norm" in name for name in _recognised(g, SHAPE, _spell(g, "x", spelling), tmp_path))


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("number", ["epsilon", "exponent"])
def test_a_number_of_more_axes_gives_them_to_the_result(
    centred: bool, number: str, cpu: tvm.target.Target, run_program: RunsProgram
) -> None:
    """A norm has the axes of its tensor."""
    from tvm import relax

    from kintune.compiler.graph.assemble import assemble
    from kintune.compiler.graph.lower import lower

    op, builder = relax.op, relax.BlockBuilder()
    small, two = np.full((1, 1, 1), 1e-3, np.float32), np.full((1, 1, 1), 2.0, np.float32)
    epsilon, exponent = (small, two[0, 0]) if number == "epsilon" else (small[0, 0], two)
    x = relax.Var("x", relax.TensorType((2, 8), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            tensor = builder.emit(op.subtract(x, builder.emit(op.mean(x, [-1], keepdims=True)))) if centred else x
            square = builder.emit(op.mean(builder.emit(op.power(tensor, relax.const(exponent))), [-1], keepdims=True))
            root = builder.emit(op.sqrt(builder.emit(op.add(square, relax.const(epsilon)))))
            done = builder.emit_output(builder.emit(op.divide(tensor, root)))
        builder.emit_func_output(done)
    array = np.random.default_rng(1).standard_normal((2, 8), np.float32)
    (found,) = run_program(assemble(lower(builder.get(), cpu), {}, cpu), array)
    moved = array - array.mean(-1, keepdims=True) if centred else array
    wanted = moved / np.sqrt((moved**2).mean(-1, keepdims=True) + np.float32(1e-3))
    np.testing.assert_allclose(found, wanted[None], rtol=1e-4, atol=1e-5)


def test_a_difference_to_the_mean_over_other_axes_has_a_mean_square(tmp_path: Path) -> None:
    g = Graph()
    spelling = Spelling((3,), True, "Mul", "Div", "none", True, True, NEAR_MISSES[0])
    assert _recognised(g, SHAPE, _spell(g, "x", spelling), tmp_path) == ["mean", "subtract", "rms_norm", "relu"]


def test_a_group_norm_as_exporters_reshape_it(tmp_path: Path) -> None:
    g = Graph()
    flat = g("Reshape", "x", g.constant([0, 3, -1], np.int64))
    normed = g("InstanceNormalization", flat, g.constant(np.ones(3)), g.constant(np.zeros(3)), epsilon=1e-3)
    whole = g("Reshape", normed, g.constant(SHAPE, np.int64))
    result = g("Add", g("Mul", whole, g.weight(6, 1, 1)), g.weight(6, 1, 1))
    assert _recognised(g, SHAPE, result, tmp_path) == ["group_norm"]


def test_a_group_norm_that_ends_in_another_shape_is_none(tmp_path: Path) -> None:
    g = Graph()
    flat = g("Reshape", "x", g.constant([0, 3, -1], np.int64))
    normed = g("InstanceNormalization", flat, g.constant(np.ones(3)), g.constant(np.zeros(3)), epsilon=1e-3)
    whole = g("Reshape", normed, g.constant([2, 6, 8, 5], np.int64))
    found = _recognised(g, SHAPE, g("Mul", whole, g.weight(6, 1, 1)), tmp_path)
    assert "group_norm" not in found
    assert "instance_norm" in found


def test_folded_scale_and_offset_of_keras(tmp_path: Path) -> None:
    g = Graph()
    mean = g("ReduceMean", "x", axes=[3], keepdims=1)
    centred = g("Sub", "x", mean)
    variance = g("ReduceMean", g("Mul", centred, centred), axes=[3], keepdims=1)
    inverse = g("Reciprocal", g("Sqrt", g("Add", variance, g.constant(1e-3))))
    factor = g("Mul", inverse, g.weight(8))
    result = g("Add", g("Mul", "x", factor), g("Sub", g.weight(8), g("Mul", mean, factor)))
    assert _recognised(g, SHAPE, result, tmp_path) == ["layer_norm"]
