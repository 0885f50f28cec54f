"""Drawn graphs: valid, reproducible, and of many operators."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest

from kintune.models.evaluation import open_session
from kintune_lab.fuzz.drawing import Drawer, NoSuchValue
from kintune_lab.fuzz.evaluation import Refused
from kintune_lab.fuzz.graph import as_case
from kintune_lab.fuzz.rules.table import RULES
from kintune_lab.fuzz.schemas import draw_graph

_GRAPHS = range(40)


@pytest.fixture(autouse=True)
def _quiet() -> None:
    np.seterr(all="ignore")


def test_graphs_depend_on_the_seed_and_the_number_alone() -> None:
    once, again, other = draw_graph(3, 5), draw_graph(3, 5), draw_graph(4, 5)
    assert once.nodes == again.nodes
    assert all(
        np.array_equal(once.values[name], again.values[name], equal_nan=True)
        for name in once.leaves
        if once.values[name].dtype.kind == "f"
    )  # type: ignore[union-attr]
    assert once.nodes != other.nodes


def test_onnxruntime_runs_each_graph_as_a_whole_and_agrees_with_its_nodes_one_by_one() -> None:
    compared = 0
    for number in _GRAPHS:
        drawn = draw_graph(1, number)
        try:
            case = as_case(drawn)
        except Refused:
            continue
        if "SimplifiedLayerNormalization" not in {node.op_type for node in case.nodes}:  # onnxruntime's own
            onnx.checker.check_model(case.model)
        found = open_session(case.model).run(list(case.outputs), {name: drawn.values[name] for name in case.inputs})
        for name, value in zip(case.outputs, found, strict=True):
            assert np.shape(value) == np.shape(drawn.values[name]), (number, name)
        compared += 1
    assert compared > 30


def test_graphs_have_ten_nodes_on_average_and_many_operators() -> None:
    drawn = [draw_graph(2, number) for number in _GRAPHS]
    operators = Counter(node.op_type for graph in drawn for node in graph.nodes)
    assert 8 < sum(operators.values()) / len(drawn) < 12
    assert len(operators) > 100
    assert len({graph.opset for graph in drawn}) > 12


def test_a_part_of_a_graph_takes_as_inputs_what_the_rest_computes() -> None:
    drawn = next(graph for graph in (draw_graph(1, number) for number in _GRAPHS) if len(graph.nodes) > 8)
    for kept in range(len(drawn.nodes)):
        try:
            case = as_case(drawn, [kept])
        except Refused:  # a sequence
            continue
        found = open_session(case.model).run(list(case.outputs), {name: drawn.values[name] for name in case.inputs})
        assert [np.shape(each) for each in found] == [np.shape(drawn.values[name]) for name in case.outputs]


OF_OTHERS = {"If", "Loop", "Scan", "ConcatFromSequence", "SequenceAt", "SequenceErase", "SequenceInsert"}
"""Rules that need other operators, or a sequence."""


@pytest.mark.parametrize("operator", sorted(RULES.keys() - OF_OTHERS))
def test_each_rule_draws_what_onnxruntime_takes(operator: str) -> None:
    for seed in range(60):
        drawer = Drawer(np.random.default_rng(seed), (9, 17, 26)[seed % 3], [], lambda _, operator: None)
        try:
            RULES[operator](drawer, operator)
        except (Refused, NoSuchValue, ValueError, IndexError):
            continue
        return
    raise AssertionError(f"{operator} is never drawn")
