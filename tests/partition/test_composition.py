from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, checker, helper

from kintune.core.hybrid import Region
from kintune.errors import OrderError
from kintune.partition.composition import (
    compose,
    drop_unused_weights,
    extract,
    mark,
    region_operator,
    unmarked,
)
from kintune.runtime.hybrid_package import operator_domain
from tests.support.partitions import DIGEST, computed, drawn, parse, weight_names, with_functions

TEXT = """
    m (float[2, 3] x) => (float[2, 3] y, float[2, 3] z)
    <float[3] v = {1, 2, 3}, float[3] w = {4, 5, 6}, float[3] both = {7, 8, 9}, int64 axis = {1}> {
        a = Add(x, v)
        b = Mul(a, both)
        c = CumSum(b, axis)
        d = Sub(c, w)
        y = Div(d, both)
        z = Neg(c)
    }
"""
REGIONS = (
    Region("kintune/region0", ("Add of 'a'", "Mul of 'b'"), ("x",), ("b",)),
    Region("kintune/region1", ("Sub of 'd'", "Div of 'y'"), ("c",), ("y",)),
)

BODIES = """
    m (float[2] x, bool c) => (float[2] y) <float[2] w = {3, 4}> {
        h = Add(x, w)
        y = If(c) <
            then_branch = yes () => (float[2] a) <float[2] v = {5, 6}> {
                s = Mul(h, v)  t = Add(s, w)  a = Neg(t)
            },
            else_branch = no () => (float[2] b) { b = Abs(h) }
        >
    }
"""
INNER = Region("kintune/region0", ("Mul of 's'", "Add of 't'"), ("h",), ("t",))


def marked() -> ModelProto:
    """The graph in which the nodes 0 and 1 are region 0, and the nodes 3 and 4 region 1."""
    model = parse(TEXT)
    for number, members in enumerate(((0, 1), (3, 4))):
        for member in members:
            mark(model.graph.node[member], number)
    for name in ("b", "c"):
        model.graph.value_info.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, (2, 3)))
    return model


def marked_body() -> ModelProto:
    """The graph in which two nodes of a branch are region 0."""
    model = parse(BODIES)
    body = next(a.g for a in model.graph.node[1].attribute if a.g.name == "yes")
    for node in list(body.node)[:2]:
        mark(node, 0)
    for name in ("h", "t"):
        body.value_info.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, (2,)))
    return model


def operators(model: ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


class TestCompose:
    def test_each_region_is_one_node(self) -> None:
        host = compose(marked(), REGIONS, (0, 1), DIGEST)
        assert operators(host) == ["Region0", "CumSum", "Region1", "Neg"]
        first, _, second, _ = host.graph.node
        assert (list(first.input), list(first.output), first.name) == (["x"], ["b"], "kintune/region0")
        assert (list(second.input), list(second.output), second.domain) == (["c"], ["y"], operator_domain(DIGEST))

    def test_the_domain_is_that_of_the_file(self) -> None:
        host = compose(marked(), REGIONS, (0,), DIGEST)
        assert [entry.version for entry in host.opset_import if entry.domain == operator_domain(DIGEST)] == [1]

    def test_weights_that_only_regions_read_are_left_out(self) -> None:
        assert weight_names(compose(marked(), REGIONS, (0, 1), DIGEST)) == ["axis"]
        assert weight_names(compose(marked(), REGIONS, (0,), DIGEST)) == ["w", "both", "axis"]

    def test_what_is_not_kept_stays_as_it_was_and_the_rest_is_numbered_anew(self) -> None:
        host = compose(marked(), REGIONS, (1,), DIGEST)
        assert operators(host) == ["Add", "Mul", "CumSum", "Region0", "Neg"]
        assert not any(node.doc_string for node in host.graph.node)

    def test_without_a_region_it_is_the_users_graph(self) -> None:
        host = compose(marked(), REGIONS, (), DIGEST)
        assert operators(host) == operators(parse(TEXT))
        assert [entry.domain for entry in host.opset_import] == ["", "com.microsoft"]
        checker.check_model(host, full_check=True)

    def test_the_marked_graph_is_not_changed(self) -> None:
        graph = marked()
        before = graph.SerializeToString()
        compose(graph, REGIONS, (0, 1), DIGEST)
        assert graph.SerializeToString() == before

    @pytest.mark.parametrize("kept", [(), (0,), (1,), (0, 1), (1, 0)])
    def test_it_is_a_valid_graph_that_computes_the_same(self, kept: tuple[int, ...]) -> None:
        host = with_functions(compose(marked(), REGIONS, kept, DIGEST), marked(), REGIONS, kept)
        checker.check_model(host, full_check=True)
        inputs = drawn(marked())
        expected = computed(unmarked(marked()), inputs)
        assert {name: array.tolist() for name, array in computed(host, inputs).items()} == {
            name: array.tolist() for name, array in expected.items()
        }

    def test_a_region_stands_where_its_last_input_is_computed(self) -> None:
        """Its nodes lie before and after another node, which it needs."""
        graph = parse("m (float[2] x, float[2] u) => (float[2] y) { h = Relu(x)  k = Ceil(u)  y = Add(h, k) }")
        for member in (0, 2):
            mark(graph.graph.node[member], 0)
        region = Region("kintune/region0", ("Relu of 'h'", "Add of 'y'"), ("x", "k"), ("y",))
        assert operators(compose(graph, (region,), (0,), DIGEST)) == ["Ceil", "Region0"]

    def test_a_region_in_a_body(self) -> None:
        graph = marked_body()
        host = compose(graph, (INNER,), (0,), DIGEST)
        bodies = {a.g.name: a.g for a in host.graph.node[1].attribute}
        assert [node.op_type for node in bodies["yes"].node] == ["Region0", "Neg"]
        assert list(bodies["yes"].initializer) == []
        assert weight_names(host) == ["w"]  # the main graph reads it too
        assert any(entry.domain == operator_domain(DIGEST) for entry in host.opset_import)
        for c in (False, True):
            inputs = {"x": np.array([1, -2], np.float32), "c": np.array(c)}
            alone = with_functions(host, graph, (INNER,), (0,))
            assert computed(alone, inputs)["y"].tolist() == computed(parse(BODIES), inputs)["y"].tolist()


class TestExtract:
    def test_the_region_alone_has_its_weights_and_computes_the_same(self) -> None:
        graph = marked()
        second = extract(graph, REGIONS[1], 1)
        checker.check_model(second, full_check=True)
        assert operators(second) == ["Sub", "Div"]
        assert sorted(weight_names(second)) == ["both", "w"]
        inputs = drawn(graph)
        whole = unmarked(graph)
        whole.graph.output.add(name="c")
        expected = computed(whole, inputs)
        assert computed(second, {"c": expected["c"]})["y"].tolist() == expected["y"].tolist()

    def test_it_has_no_marks(self) -> None:
        assert not any(node.doc_string for node in extract(marked(), REGIONS[0], 0).graph.node)

    def test_a_region_of_a_body_has_the_weights_around_it(self) -> None:
        alone = extract(marked_body(), INNER, 0)
        checker.check_model(alone, full_check=True)
        assert sorted(weight_names(alone)) == ["v", "w"]
        assert computed(alone, {"h": np.array([1, 2], np.float32)})["t"].tolist() == [8, 16]

    def test_a_region_that_is_not_there(self) -> None:
        with pytest.raises(OrderError, match="no region 2"):
            extract(marked(), REGIONS[0], 2)


def test_a_graph_without_its_marks_keeps_what_the_user_wrote() -> None:
    graph = marked()
    graph.graph.node[2].doc_string = "the user's"
    assert [node.doc_string for node in unmarked(graph).graph.node] == ["", "", "the user's", "", "", ""]


def test_weights_are_dropped_where_no_node_reads_them_also_in_bodies() -> None:
    model = parse(
        """m (float[2] x, bool c) => (float[2] y) <float[2] w = {3, 4}, float[2] unused = {3, 4}> {
        y = If(c) <
            then_branch = yes () => (float[2] a) <float[2] u = {5, 6}> { a = Mul(x, w) },
            else_branch = no () => (float[2] b) <float[2] v = {5, 6}> { b = Add(x, v) }
        > }"""
    )
    assert drop_unused_weights(model.graph) >= {"x", "w", "v", "c", "y"}
    assert weight_names(model) == ["w"]
    bodies = {a.g.name: [t.name for t in a.g.initializer] for a in model.graph.node[0].attribute}
    assert bodies == {"yes": [], "no": ["v"]}


def test_operators_are_named_by_number() -> None:
    assert region_operator(3) == "Region3"
