from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from kintune.errors import ModelError
from kintune.models.importer import load
from kintune.models.ref import parse_ref
from tests.support.examples import compiled_examples

pytestmark = pytest.mark.tvm

SIZES = dict(zip("abcdef", (2, 3, 4, 5, 1, 6), strict=True))


def draw(letters: str, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal([SIZES[each] for each in letters]).astype(np.float32)


def case(make_case: Any, equation: str) -> Any:
    terms = equation.replace(" ", "").partition("->")[0].split(",")
    return make_case("Einsum", *(draw(term, at) for at, term in enumerate(terms)), equation=equation)


@pytest.mark.parametrize(
    "equation",
    ["abcd,afcd->acbf", "ab,bc->ac", "ab,bc", "ba, bc -> ca", "ab,ab->", "ab,cd->dabc", "ab,ab->ab", "abc,bd->acd"],
)
def test_two_operands_are_a_product(compare: Any, make_case: Any, equation: str) -> None:
    compare([case(make_case, equation)], 12)


@pytest.mark.parametrize("equation", ["abc->cab", "abc->b", "abc->", "ba"])
def test_one_operand_is_summed_and_transposed(compare: Any, make_case: Any, equation: str) -> None:
    compare([case(make_case, equation)], 12)


@pytest.mark.parametrize(
    ("equation", "said"),
    [
        ("ab->ca", "has an axis twice, or one that no tensor has"),
        ("ab->aba", "has an axis twice, or one that no tensor has"),
        ("ab,bc->ac", "is for 2 tensors, and there are 1"),
        ("abc->a", "does not name the 2 axes of its tensor"),
        ("...abc->a", "does not name the 2 axes of its tensor"),
        ("a\u00fc->a", "does not name the 2 axes of its tensor"),
    ],
)
def test_an_equation_that_does_not_fit_is_refused(make_model: Any, tmp_path: Path, equation: str, said: str) -> None:
    node = helper.make_node("Einsum", ["x"], ["y"], equation=equation)
    graph = helper.make_graph(
        [node],
        "sum",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "a.onnx")
    with pytest.raises(ModelError, match=said):
        load(parse_ref(str(tmp_path / "a.onnx")))


def test_what_is_left_to_the_compiler(compare: Any, make_case: Any) -> None:
    compare([case(make_case, "ab,bc,cd->ad")], 12)
    x, y = draw("abc"), draw("acd", 1)
    compare([make_case("Einsum", x, y, equation="...bc,...cd->...bd")], 12)
    compare([make_case("Einsum", x.astype(np.int32), y.astype(np.int32), equation="abc,acd->abd")], 12)


@st.composite
def equations(draw_from: st.DrawFn) -> str:
    operands = [draw_from(st.permutations("abcdef"))[: draw_from(st.integers(1, 4))] for _ in range(2)]
    known = sorted(set(operands[0]) | set(operands[1]))
    result = draw_from(st.permutations(known))[: draw_from(st.integers(0, min(5, len(known))))]
    return ",".join("".join(each) for each in operands) + "->" + "".join(result)


@compiled_examples(
    4, deadline=None, phases=[Phase.generate], suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(several=st.lists(equations(), min_size=6, max_size=6))
def test_any_equation(compare: Any, make_case: Any, several: list[str]) -> None:
    compare([case(make_case, equation) for equation in several], 12)


def test_half_precision_is_summed_in_float32(compare: Any, make_case: Any) -> None:
    """Also where the compiler's own kernel sums."""
    rng = np.random.default_rng(0)
    left, right = (rng.standard_normal(shape).astype(np.float16) for shape in ((2, 8, 600), (600, 3)))
    compare([make_case("Einsum", left, right, equation="...ij,jk->...ik")], 12, rtol=2e-3, atol=1e-2)


def test_attention_of_equations_is_one_kernel(make_model: Any, tmp_path: Path) -> None:
    from onnx import helper

    from kintune.compiler.graph.lower import lower
    from kintune.models.importer import load
    from kintune.models.ref import parse_ref

    nodes = [
        helper.make_node("Einsum", ["q", "k"], ["scores"], equation="bind,bjnd->bnij"),
        helper.make_node("Softmax", ["scores"], ["weights"], axis=-1),
        helper.make_node("Einsum", ["weights", "v"], ["y"], equation="bnij,bjnd->bind"),
    ]
    path = tmp_path / "attention.onnx"
    ports = [(name, 1, (1, 7, 2, 8)) for name in "qkvy"]
    path.write_bytes(make_model(nodes, ports[:3], ports[3:]).SerializeToString())
    import tvm

    target = tvm.target.Target({"kind": "llvm", "mcpu": "core-avx2", "num-cores": 2})
    lowered = lower(load(parse_ref(str(path))).module, target)
    assert [each.operator for each in lowered.workloads] == ["attention"]
