from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto, checker

from kintune.core.hybrid import Region
from kintune.errors import ModelError
from kintune.partition import partition as module
from kintune.partition.composition import compose, unmarked
from kintune.partition.partition import Partition, partition
from tests.support.partitions import (
    DIGEST,
    Refusing,
    computed,
    drawn,
    onnx_model,
    parse,
    values_of,
    weight_names,
    with_functions,
)

CHAIN = """
    m (float[64, 512] x) => (float[64, 512] y) {
        a = Relu(x)  b = Sigmoid(a)  c = Erf(b)  d = Sqrt(c)  e = Neg(d)  y = Exp(e)
    }
"""


def partitioned(text: str, *refused: str, handed_over: Collection[str] = ()) -> Partition:
    return partition(onnx_model(parse(text)), Refusing(*refused), handed_over)


def left_in(found: Partition) -> list[str]:
    """The operators of the host graph with all regions."""
    host = compose(found.marked, found.regions, range(len(found.regions)), DIGEST)
    return [node.op_type for node in host.graph.node]


class TestRegions:
    def test_what_can_be_compiled_is_one_region(self) -> None:
        found = partitioned(CHAIN)
        assert found.regions == (
            Region(
                "kintune/region0",
                ("Relu of 'a'", "Sigmoid of 'b'", "Erf of 'c'", "Sqrt of 'd'", "Neg of 'e'", "Exp of 'y'"),
                ("x",),
                ("y",),
            ),
        )
        assert (found.operators, found.reasons) == ({}, {})
        assert found.outputs == {"y": ("float32", (64, 512))}

    def test_a_node_that_cannot_be_compiled_stays_and_has_a_reason(self) -> None:
        found = partitioned(CHAIN, "Erf")
        assert left_in(found) == ["Region0", "Erf", "Region1"]
        assert found.operators == {"Erf": 1}
        assert found.reasons == {"Erf of 'c'": "operator Erf is not supported"}
        assert [(region.inputs, region.outputs) for region in found.regions] == [(("x",), ("b",)), (("c",), ("y",))]

    def test_regions_that_cannot_pay_are_given_up(self) -> None:
        found = partitioned(CHAIN, "Sqrt", "Sigmoid")
        assert left_in(found) == ["Relu", "Sigmoid", "Erf", "Sqrt", "Region0"]
        assert found.reasons["Relu of 'a'"] == "too little to gain by a region of its own"
        assert found.operators == {"Relu": 1, "Sigmoid": 1, "Erf": 1, "Sqrt": 1}

    def test_a_tensor_that_is_used_outside_is_an_output_of_its_region(self) -> None:
        found = partitioned(
            """m (float[64, 512] x) => (float[64, 512] y, float[64, 512] b) {
                o = Floor(x)  p = Ceil(o)  a = Relu(p)  b = Sigmoid(a)  c = Erf(a)  d = Neg(b)  y = Add(d, c) }""",
            "Erf",
        )
        (region,) = found.regions
        assert left_in(found) == ["Region0", "Erf", "Add"]
        assert region.outputs == ("a", "b", "d")

    def test_shapes_that_depend_on_the_data_stay(self) -> None:
        found = partitioned("""m (float[64, 512] x) => (int64[2, N] y) { a = Relu(x)  b = Floor(a)  y = NonZero(b) }""")
        assert left_in(found) == ["Region0", "NonZero"]
        assert found.reasons == {"NonZero of 'y'": "a shape depends on the data, or a value is no tensor of numbers"}
        assert found.outputs == {"y": ("int64", (-1, -1))}

    def test_operators_of_others_are_counted_with_their_domain(self) -> None:
        found = partitioned("m (float[2, 3] x) => (float[2, 3] y) { h = com.microsoft.Gelu(x)  y = Relu(h) }", "Gelu")
        assert found.operators == {"com.microsoft::Gelu": 1, "Relu": 1}

    def test_an_output_that_is_no_tensor_is_left_out(self) -> None:
        found = partitioned("m (float[2] x) => (seq(float[2]) y) { y = SequenceConstruct(x, x) }")
        assert found.regions == ()
        assert found.outputs == {}

    def test_the_model_is_not_changed(self) -> None:
        model = onnx_model(parse(CHAIN))
        before = model.proto.SerializeToString()
        partition(model, Refusing("Erf"))
        assert model.proto.SerializeToString() == before

    def test_reasons_have_a_limit(self) -> None:
        nodes = " ".join(f"t{at + 1} = Relu(t{at})" for at in range(250))
        found = partitioned(f"m (float[2] t0) => (float[2] t250) {{ {nodes} }}", "Relu")
        assert found.operators == {"Relu": 250}
        assert len(found.reasons) == 200


class TestWeights:
    TEXT = """
        m (float[64, 512] x, float[512] w) => (float[64, 512] y) <float[1] one = {1}> {
            two = Add(one, one)  a = Add(x, w)  b = Mul(a, two)  c = Erf(b)  d = Neg(c)  y = Mul(d, w)
        }
    """

    def test_large_weights_are_back_in_the_graph_and_no_inputs_of_regions(self) -> None:
        values = np.arange(512, dtype=np.float32)
        found = partition(onnx_model(parse(self.TEXT), {"w": values}), Refusing("Erf"))
        assert [value.name for value in found.marked.graph.input] == ["x"]
        assert values_of(found.marked, "w").tolist() == values.tolist()
        assert [region.inputs for region in found.regions] == [("x",), ("c",)]

    def test_what_constants_alone_decide_is_a_weight(self) -> None:
        found = partition(onnx_model(parse(self.TEXT), {"w": np.ones(512, np.float32)}), Refusing("Erf"))
        assert sorted(weight_names(found.marked)) == ["two", "w"]
        assert not any("two" in node for region in found.regions for node in region.nodes)

    def test_more_than_an_onnx_file_can_hold_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "_MOST_BYTES", 1000)
        with pytest.raises(ModelError, match=r"m\.onnx: cannot be compiled as a whole, and .* too large") as caught:
            partition(onnx_model(parse(self.TEXT), {"w": np.ones(512, np.float32)}), Refusing())
        assert "\n" not in str(caught.value)


class TestHandingOver:
    def test_a_node_that_is_handed_over_is_not_asked_for(self) -> None:
        compiler = Refusing()
        found = partition(onnx_model(parse(CHAIN)), compiler, ("Erf of 'c'",))
        assert left_in(found) == ["Region0", "Erf", "Region1"]
        assert "Erf of 'c'" not in compiler.asked
        assert found.reasons == {"Erf of 'c'": "slow, wrong or not compilable in this network"}

    def test_everything_is_handed_over(self) -> None:
        compiler = Refusing()
        found = partition(onnx_model(parse(CHAIN)), compiler, ("*",))
        assert (found.regions, compiler.asked) == ((), [])
        assert sum(found.operators.values()) == 6


BODIES = """
    m (float[64, 512] x, bool c) => (float[64, 512] y) <float[512] w> {
        h = Erf(x)
        y = If(c) <
            then_branch = yes () => (float[64, 512] a) {
                p = Relu(h)  q = Sigmoid(p)  r = Erf(q)  s = Sqrt(q)  t = Add(r, s)  u = Neg(t)  a = Mul(u, x)
            },
            else_branch = no () => (float[64, 512] b) {
                k = Abs(x)  l = Exp(k)  b = Erf(l)
            }
        >
    }
"""


class TestBodies:
    def test_branches_are_looked_into(self) -> None:
        found = partitioned(BODIES, "If", "Erf")
        assert found.operators == {"Erf": 3, "If": 1}
        assert [(region.nodes, region.inputs, region.outputs) for region in found.regions] == [
            (("Relu of 'p'", "Sigmoid of 'q'", "Sqrt of 's'"), ("h",), ("q", "s")),
            (("Add of 't'", "Neg of 'u'", "Mul of 'a'"), ("r", "s", "x"), ("a",)),
            (("Abs of 'k'", "Exp of 'l'"), ("x",), ("l",)),
        ]  # fmt: skip

    @pytest.mark.parametrize("kept", [(), (0,), (1, 2), (0, 1, 2)])
    def test_they_compute_the_same(self, kept: tuple[int, ...]) -> None:
        found = partitioned(BODIES, "If", "Erf")
        for c in (False, True):
            inputs = {"x": drawn(parse(CHAIN))["x"], "c": np.array(c)}
            _same(found, kept, parse(BODIES), inputs)

    def test_nothing_inside_a_node_that_can_be_compiled_is_asked_for(self) -> None:
        compiler = Refusing("Erf")
        partition(onnx_model(parse(BODIES)), compiler)
        assert compiler.asked == ["Erf of 'h'", "If of 'y'"]

    def test_a_body_of_a_loop(self) -> None:
        text = """m (float[64, 512] x, int64 n, bool c) => (float[64, 512] y) {
            y = Loop(n, c, x) <body = b (int64 i, bool go, float[64, 512] s) => (bool on, float[64, 512] r) {
                on = Identity(go)  p = Relu(x)  q = Sigmoid(p)  e = Erf(s)  r = Add(e, q)
            }>
        }"""
        found = partitioned(text, "Loop", "Erf")
        assert [region.nodes for region in found.regions] == [("Relu of 'p'", "Sigmoid of 'q'", "Add of 'r'")]
        assert found.regions[0].inputs == ("x", "e")
        inputs = {"x": drawn(parse(CHAIN))["x"], "n": np.array(3), "c": np.array(True)}
        _same(found, (0,), parse(text), inputs)


def _same(found: Partition, kept: Collection[int], original: ModelProto, inputs: dict[str, np.ndarray]) -> None:
    """The composed graph is valid, and computes exactly what the original does."""
    host = with_functions(compose(found.marked, found.regions, tuple(kept), DIGEST), found.marked, found.regions, kept)
    checker.check_model(host)
    expected = computed(original, inputs)
    for composed in (computed(host, inputs), computed(unmarked(found.marked), inputs)):
        assert composed.keys() == expected.keys()
        for name, values in expected.items():
            assert np.array_equal(composed[name], values, equal_nan=True), name


@st.composite
def graphs(draw: st.DrawFn) -> ModelProto:
    """Random graphs, of tensors that are large or small, with nodes whose shapes depend on the data."""
    shape = draw(st.sampled_from(["2, 3", "64, 512"]))
    tensors, nodes = ["x"], []
    for at in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from(["Relu", "Sigmoid", "Neg", "Add", "Mul", "weight", "NonZero", "constant"]))
        source, other = draw(st.sampled_from(tensors)), draw(st.sampled_from(tensors))
        if kind in ("Add", "Mul"):
            nodes.append(f"t{at} = {kind}({source}, {other})")
        elif kind == "weight":
            nodes.append(f"t{at} = Add({source}, w)")
        elif kind == "constant":
            nodes.append(f"k{at} = Neg(w)  t{at} = Mul({source}, k{at})")
        elif kind == "NonZero":
            nodes.append(f"n{at} = NonZero({source})  f{at} = Cast<to = 1>(n{at})")
            nodes.append(
                f"s{at} = ReduceSum<keepdims = 0>(f{at})  u{at} = Sigmoid(s{at})  t{at} = Add({source}, u{at})"
            )
        else:
            nodes.append(f"t{at} = {kind}({source})")
        tensors.append(f"t{at}")
    outputs = draw(st.lists(st.sampled_from(tensors[1:]), min_size=1, max_size=3, unique=True))
    declared = ", ".join(f"float[{shape}] {name}" for name in outputs)
    return parse(f"m (float[{shape}] x) => ({declared}) <float[1] w = {{0.5}}> {{ {' '.join(nodes)} }}")


@given(graphs(), st.data())
def test_whatever_is_refused_the_composed_graph_computes_the_same(proto: ModelProto, data: st.DataObject) -> None:
    names = [f"{node.op_type} of '{node.output[0]}'" for node in proto.graph.node]
    refused = data.draw(st.sets(st.sampled_from(names)))
    handed_over = data.draw(st.sets(st.sampled_from(names), max_size=2))
    found = partition(onnx_model(proto), Refusing(*refused), handed_over)
    numbers = list(range(len(found.regions)))
    kept = data.draw(st.lists(st.sampled_from(numbers), unique=True)) if numbers else []
    _same(found, kept, proto, drawn(proto))
    _same(found, numbers, proto, drawn(proto))
    assert not {node for region in found.regions for node in region.nodes} & (refused | handed_over)
