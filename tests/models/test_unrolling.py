"""Loops written out compute what onnxruntime computes with the loop, and stay where their steps are not known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import ModelProto

from kintune.models import unrolling
from kintune.models.evaluation import open_session
from kintune.models.onnx import read
from kintune.models.onnx_nodes import nodes
from kintune.models.unrolling import certain_steps, unroll

OPSETS = (11, 17)


def parsed(text: str, opset: int = 17) -> ModelProto:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> {text}')
    onnx.checker.check_model(model)
    return model


def outputs(model: ModelProto) -> list[Any]:
    session = open_session(model)
    generator = np.random.default_rng(0)
    feeds: dict[str, NDArray[np.float32]] = {
        port.name: generator.standard_normal(port.shape).astype(np.float32) for port in session.get_inputs()
    }
    found: list[Any] = session.run(None, feeds)
    return found


def written_out(model: ModelProto) -> ModelProto:
    """`model` without loops, which must compute the same."""
    unrolled = unroll(model, model.opset_import[0].version)
    assert unrolled is not None
    assert not {node.op_type for node in nodes(unrolled)} & {"Loop", "Scan"}
    for found, wanted in zip(outputs(unrolled), outputs(model), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
    return unrolled


COUNTED = """counted (float[2, 3] x) => (float[2, 3] y, float[4, 2, 3] all) {
    n = Constant <value = int64 {4}> ()
    yes = Constant <value = bool {1}> ()
    y, all = Loop (n, yes, x) <
            body = step (int64 i, bool go, float[2, 3] s) => (bool on, float[2, 3] t, float[2, 3] o) {
        two = Constant <value = float {2}> ()
        on = Identity (go)
        at = Cast <to = 1> (i)
        sum = Add (s, at)
        t = Mul (sum, two)
        o = Sub (t, x)
    }>
}"""


@pytest.mark.parametrize("opset", OPSETS)
def test_a_counted_loop(opset: int) -> None:
    unrolled = written_out(parsed(COUNTED, opset))
    assert sum(node.op_type == "Mul" for node in unrolled.graph.node) == 4
    assert not any(node.op_type == "Cast" for node in unrolled.graph.node)  # of a number that is known


def test_the_steps_share_the_constants_of_the_body() -> None:
    multiplied = [node for node in written_out(parsed(COUNTED)).graph.node if node.op_type == "Mul"]
    assert len({node.input[1] for node in multiplied}) == 1


def test_a_loop_that_ends_by_its_condition() -> None:
    written_out(
        parsed("""ends (float[3] x) => (float[3] y) {
            start = Constant <value = int64 {2}> ()
            most = Constant <value = int64 {9223372036854775807}> ()
            yes = Constant <value = bool {1}> ()
            last, y = Loop (most, yes, start, x) <
                body = step (int64 i, bool go, int64 k, float[3] s) => (bool on, int64 l, float[3] t) {
                    one = Constant <value = int64 {1}> ()
                    end = Constant <value = int64 {5}> ()
                    l = Add (k, one)
                    on = Less (l, end)
                    t = Mul (s, s)
                }>
        }""")
    )


def test_a_loop_in_a_loop_and_a_branch_inside() -> None:
    written_out(
        parsed("""nested (float[3] x) => (float[3] y) {
            n = Constant <value = int64 {2}> ()
            zero = Constant <value = float {0}> ()
            sum = ReduceSum <keepdims = 0> (x)
            some = Greater (sum, zero)
            y = Loop (n, , x) <body = outer (int64 i, bool go, float[3] s) => (bool on, float[3] t) {
                three = Constant <value = int64 {3}> ()
                on = Identity (go)
                u = Loop (three, , s) <body = inner (int64 j, bool g, float[3] a) => (bool h, float[3] b) {
                    h = Identity (g)
                    at = Cast <to = 1> (j)
                    b = Add (a, at)
                }>
                t = If (some) <
                    then_branch = then () => (float[3] v) { v = Mul (u, x) },
                    else_branch = other () => (float[3] w) { w = Sub (u, s) }>
            }>
        }""")
    )


def test_a_loop_without_steps_passes_its_state() -> None:
    written_out(
        parsed("""none (float[3] x) => (float[3] y) {
            n = Constant <value = int64 {0}> ()
            y = Loop (n, , x) <body = step (int64 i, bool go, float[3] s) => (bool on, float[3] t) {
                on = Identity (go)
                t = Add (s, s)
            }>
        }""")
    )


@pytest.mark.parametrize("opset", OPSETS)
def test_a_scan_over_any_axis_in_any_direction(opset: int) -> None:
    written_out(
        parsed(
            """scanned (float[3] s, float[2, 3, 5] a, float[5, 3] b) => (float[3] t, float[2, 3, 5] all) {
                t, all = Scan <num_scan_inputs = 2, scan_input_axes = [2, 0], scan_input_directions = [1, 0],
                               scan_output_axes = [2], scan_output_directions = [1],
                    body = step (float[3] u, float[2, 3] p, float[3] q) => (float[3] v, float[2, 3] o) {
                        v = Add (u, q)
                        o = Mul (p, v)
                    }> (s, a, b)
            }""",
            opset,
        )
    )


def test_a_scan_over_what_another_reads_in_a_step_or_over_its_state() -> None:
    written_out(
        parsed(
            """nested (float[3] s, float[4, 2, 3] a) => (float[3] t, float[4, 3] all) {
                t, all = Scan <num_scan_inputs = 1,
                        body = step (float[3] u, float[2, 3] p) => (float[3] v, float[3] w) {
                    x = Scan <num_scan_inputs = 1, body = inner (float[3] i, float[3] q) => (float[3] r) {
                        r = Add (i, q)
                    }> (u, p)
                    zero = Constant <value = float {0}> ()
                    y, v = Scan <num_scan_inputs = 1, body = each (float i1, float q1) => (float r1, float o1) {
                        r1 = Add (i1, q1)
                        o1 = Identity (r1)
                    }> (zero, u)
                    w = Add (x, y)
                }> (s, a)
            }"""
        )
    )


DEPENDS = """depends (float[3] x) => (float[3] y) {
    n = Constant <value = int64 {4}> ()
    yes = Constant <value = bool {1}> ()
    y = Loop (n, yes, x) <body = step (int64 i, bool go, float[3] s) => (bool on, float[3] t) {
        zero = Constant <value = float {0}> ()
        t = Add (s, s)
        sum = ReduceSum <keepdims = 0> (t)
        on = Greater (sum, zero)
    }>
}"""

LONG = COUNTED.replace("int64 {4}", "int64 {2500}").replace("float[4, 2, 3]", "float[2500, 2, 3]")

RANDOM = COUNTED.replace("o = Sub (t, x)", "o = RandomNormalLike (t)")


@pytest.mark.parametrize("text", [DEPENDS, LONG, RANDOM])
def test_what_is_not_known_or_too_much_stays(text: str) -> None:
    assert unroll(parsed(text), 17) is None


ENDLESS = COUNTED.replace("int64 {4}", "int64 {1099511627776}").replace("float[4, 2, 3]", "float[n, 2, 3]")


def test_a_loop_of_too_many_steps_is_neither_followed_nor_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run: list[Any] = []

    def never(*given: Any) -> Any:
        run.append(given)
        raise AssertionError

    monkeypatch.setattr("kintune.models.slimming._timed", never)
    monkeypatch.setattr(unrolling, "evaluate", never)
    onnx.save(parsed(ENDLESS), tmp_path / "endless.onnx")
    found = read(tmp_path / "endless.onnx", {}).proto
    assert [node.op_type for node in nodes(found) if node.op_type == "Loop"] == ["Loop"]
    assert run == []


def test_steps_are_certain_where_nothing_ends_the_loop() -> None:
    assert certain_steps(parsed(COUNTED)) == 4
    assert certain_steps(parsed(ENDLESS)) == 1 << 40
    assert certain_steps(parsed(ENDLESS.replace("n, yes, x", "n, , x"))) == 1 << 40
    always = "on = Constant <value = bool {1}> ()"
    assert certain_steps(parsed(ENDLESS.replace("on = Identity (go)", always))) == 1 << 40
    for ends in (DEPENDS, ENDLESS.replace("bool {1}", "bool {0}"), ENDLESS.replace("Identity (go)", "Not (go)")):
        assert certain_steps(parsed(ends)) == 0


def test_a_loop_that_stays_leaves_the_others_their_share_of_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unrolling, "_MOST_NODES", 8)  # four steps of two
    both = DEPENDS.replace("(float[3] y) {", "(float[3] y, float[3] z) {")
    second = """
        z = Loop (n, yes, x) <body = again (int64 j, bool g, float[3] a) => (bool h, float[3] b) {
            h = Identity (g)
            b = Add (a, a)
        }>
    }"""
    found = unroll(parsed(both[: both.rindex("}")] + second), 17)
    assert found is not None
    assert [node.op_type for node in found.graph.node if node.op_type in ("Loop", "Add")] == ["Loop", *["Add"] * 4]


def test_a_loop_that_runs_as_often_as_another_has_results(tmp_path: Path) -> None:
    head = COUNTED.partition("{")[0]
    text = COUNTED.replace(head, "rows (float[2, 3] x) => (float[2, 3] z) ")
    body = """
        sizes = Shape (all)
        first = Constant <value = int64 {0}> ()
        often = Gather (sizes, first)
        z = Loop (often, , y) <body = again (int64 j, bool g, float[2, 3] a) => (bool h, float[2, 3] b) {
            h = Identity (g)
            b = Add (a, a)
        }>
    }"""
    model = parsed(text[: text.rindex("}")] + body)
    onnx.save(model, tmp_path / "rows.onnx")
    found = read(tmp_path / "rows.onnx", {}).proto
    assert not any(node.op_type == "Loop" for node in nodes(found))
    np.testing.assert_allclose(outputs(found)[0], outputs(model)[0], rtol=1e-6)


@pytest.mark.tvm
def test_a_model_with_a_loop_is_compiled_as_a_whole(tmp_path: Path, run_module: Any) -> None:
    from kintune.models.importer import load
    from kintune.models.ref import parse_ref

    model = parsed(COUNTED)
    onnx.save(model, tmp_path / "counted.onnx")
    imported = load(parse_ref(str(tmp_path / "counted.onnx")))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    wanted = open_session(model).run(None, {"x": x})
    for found, right in zip(run_module(imported, {"x": x}), wanted, strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-6)
