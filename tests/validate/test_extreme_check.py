"""The comparison on extreme inputs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from kintune.core.hybrid import Hybrid
from kintune.core.kernel_call import CallRecord, SourceNode
from kintune.core.model import Combination, Tensor
from kintune.core.stage_requests import ValidationContext, ValidationItem
from kintune.core.stage_results import ValidationResult
from kintune.core.verdict import Verdict
from kintune.runtime.extreme_inputs import extreme_inputs
from kintune.runtime.hybrid_package import write_hybrid
from kintune.runtime.inputs import load_inputs
from kintune.validate.baseline_protocol import BaselineTurn
from kintune.validate.extreme_check import ExtremeCheck, hides_nan, settled, spreads
from kintune.validate.input_sets import InputSets
from kintune.validate.numerics import NOTHING_COMPARED
from kintune.validate.plain_outputs import save_outputs
from kintune.validate.validation import validate_executable
from kintune.validate.validation_run import ValidationRun
from kintune.wire.worker_client import WorkerDied
from tests.support.toy_model import calling, manifest

REACH = 4


def test_only_places_around_one_without_a_number_are_left_out() -> None:
    expected = np.zeros((2, 3, 20, 20), np.float32)
    expected[0, 1, 10, 10] = np.nan
    output = np.full_like(expected, 5.0)
    output[0, :, 8:12, 8:12] = np.nan
    left = settled(output, expected, REACH)
    taken = ~np.isclose(left, output, equal_nan=True)
    assert taken.sum() == taken[0, :, 6:15, 6:15].sum() == 3 * 9 * 9 - 1
    assert np.isnan(left[0, 1, 10, 10])
    assert np.isnan(settled(output, expected)).sum() == 3 * 4 * 4  # nothing is left out without a reach


def test_a_number_in_the_place_of_an_infinity_is_not_left_out() -> None:
    expected = np.zeros((1, 1, 9, 9), np.float32)
    expected[0, 0, 4, 4] = np.inf
    output = np.full_like(expected, 7.0)
    assert settled(output, expected, REACH)[0, 0, 4, 4] == 7


def test_values_around_a_huge_one_are_left_out() -> None:
    expected = np.ones((1, 9, 9, 2), np.float32)
    expected[0, 4, 4, 0] = 1e20
    output = np.full_like(expected, np.inf)
    assert np.array_equal(settled(output, expected, 8), expected)


def test_infinities_and_huge_values_are_alike() -> None:
    expected = np.array([np.inf, np.nan, -1e30, 1.0, np.nan, 2.0], np.float32)
    output = np.array([np.nan, np.inf, np.inf, 1.0, 0.0, np.inf], np.float32)
    assert settled(output, expected)[:4].tobytes() == expected[:4].tobytes()
    assert settled(output, expected)[4:].tolist() == [0.0, np.inf]


def test_a_reference_that_hides_nan_is_not_believed_there() -> None:
    expected, output = np.array([1.0, 2.0, np.nan]), np.array([np.nan, 3.0, 4.0])
    assert settled(output, expected, hides_nan=True).tolist() == [1.0, 3.0, 4.0]
    numbers = np.array([1, 2])
    assert settled(numbers + 1, numbers, hides_nan=True) is numbers


def test_what_has_no_places_or_no_floats_stays() -> None:
    flat, wrong = np.array([[np.nan, 1.0]]), np.array([[0.0, 2.0]])
    assert settled(wrong, flat, REACH).tolist() == wrong.tolist()
    counts = np.zeros((1, 2, 3, 3), np.int64)
    assert settled(counts + 1, counts, REACH).all()


NODES: dict[str, list[tuple[Any, ...]]] = {
    "identity": [("Identity", ["x"], ["y"])],
    "wrong for zeros": [("Equal", ["x", "zero"], ["is"]), ("Where", ["is", "one", "x"], ["y"])],
    "wrong for NaN": [("IsNaN", ["x"], ["is"]), ("Where", ["is", "zero", "x"], ["y"])],
    "quantises": [
        ("Identity", ["x"], ["y"]),
        ("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero_point"]),
    ],
    "magnifies": [("Clip", ["x", "", "tiny"], ["c"]), ("Mul", ["c", "much"], ["m"]), ("Mul", ["m", "more"], ["y"])],
    "refuses": [
        ("Clip", ["x", "", "seven"], ["c"]),
        ("Cast", ["c"], ["i"], {"to": TensorProto.INT64}),
        ("Abs", ["i"], ["a"]),
        ("Gather", ["table", "a"], ["none"]),
        ("Mul", ["none", "zero"], ["nothing"]),
        ("Add", ["x", "nothing"], ["y"]),
    ],
}  # fmt: skip
CONSTANTS = {"zero": 0, "one": 1, "seven": 7, "tiny": 1e-30, "much": 1e38, "more": 100, "table": np.ones(8)}
SHAPE = (3, 5)
NAMES = tuple(each.name for each in extreme_inputs([Tensor("x", SHAPE, "float32")]))


def graph_of(kind: str) -> bytes:
    nodes = [helper.make_node(op, i, o, **(more[0] if more else {})) for op, i, o, *more in NODES[kind]]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in "xy"]
    used = {name for node in nodes for name in node.input}
    constants = [numpy_helper.from_array(np.asarray(v, np.float32), n) for n, v in CONSTANTS.items() if n in used]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], constants)
    content: bytes = helper.make_model(
        graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]
    ).SerializeToString()
    return content


def validated(folder: Path, tuned: str, reference: str, **more: Any) -> ValidationResult:
    """The validation of a result that computes one graph, in onnxruntime, against another graph."""
    onnx_path, executable = folder / "model.onnx", folder / "model.kt"
    onnx_path.write_bytes(graph_of(reference))
    ends = [[Tensor(name, SHAPE, "float32")] for name in "xy"]
    described = msgspec.structs.replace(
        manifest(calling("add", *ends), threads=1), hybrid=Hybrid((), {"Identity": 1}, {}, ())
    )
    write_hybrid(executable, described, graph_of(tuned), [])
    item = ValidationItem(str(executable), onnx=str(onnx_path), **{"extremes": True, "timed": False, **more})
    context = ValidationContext(threads=1, rounds=1, min_rounds=1, race_seconds=0.1)
    return validate_executable(context, item)


def test_a_right_result_is_right_on_all_sets(tmp_path: Path) -> None:
    found = validated(tmp_path, "identity", "identity")
    assert (found.verdict, found.extremes) == (Verdict.RIGHT, NAMES)
    assert found.max_abs_error == 0
    assert validated(tmp_path, "identity", "identity", extremes=False).extremes == ()


@pytest.mark.parametrize(
    ("kind", "where"), [("wrong for zeros", "inputs that are all zeros"), ("wrong for NaN", "inputs with one NaN")]
)
def test_what_is_wrong_on_extremes_alone_is_wrong_and_says_where(tmp_path: Path, kind: str, where: str) -> None:
    found = validated(tmp_path, kind, "identity")
    assert found.verdict is Verdict.WRONG
    assert found.disagreement.startswith("output 'y': ")
    assert found.disagreement.endswith(f"(onnxruntime, on {where})")
    assert where not in found.extremes
    assert found.wrong_on == where
    assert found.max_abs_error == 0  # on the inputs that were drawn
    assert validated(tmp_path, kind, "identity", extremes=False).verdict is Verdict.RIGHT


def test_what_the_reference_refuses_is_not_compared(tmp_path: Path) -> None:
    found = validated(tmp_path, "identity", "refuses")
    assert found.verdict is Verdict.RIGHT
    assert "inputs that are all zeros" in found.extremes
    assert "large inputs" not in found.extremes


def test_what_the_result_alone_refuses_is_wrong(tmp_path: Path) -> None:
    found = validated(tmp_path, "refuses", "identity")
    assert found.verdict is Verdict.WRONG
    assert found.disagreement.startswith("it does not run on large inputs: ")


def test_denormal_numbers_are_compared_with_a_reference_that_flushes_them(tmp_path: Path) -> None:
    assert validated(tmp_path, "magnifies", "magnifies").extremes == NAMES


def test_timed_runs_have_ordinary_inputs_again(tmp_path: Path) -> None:
    found = validated(tmp_path, "identity", "identity", timed=True, compare=("onnxruntime",))
    assert found.extremes == NAMES
    assert set(found.latency_ms) == {"tuned", "onnxruntime"}


class Process:
    """A process whose network adds `added` to its input; it counts its turns."""

    met_denormals = False

    def __init__(self, name: str, added: float = 0.0, ends_on: str = "", took_ms: float = 1.0) -> None:
        self.name, self.turns, self._added, self._ends_on, self._took_ms = name, 0, added, ends_on, took_ms
        self.limit_s, self.inputs = 0.0, ""

    def turn(self, turn: BaselineTurn, seconds: float) -> tuple[float, ...]:
        self.turns, self.limit_s, self.inputs = self.turns + 1, seconds, str(turn.inputs)
        if self._ends_on and str(turn.inputs).endswith(self._ends_on):
            raise WorkerDied("it ended by SIGSEGV")
        save_outputs(Path(str(turn.outputs)), [load_inputs(str(turn.inputs))["x"] + np.float32(self._added)])
        return (self._took_ms,)


def started(
    tmp_path: Path,
    tuned: Process,
    other: Process,
    first_extreme: str = "",
    once_ms: Mapping[str, float] = {},
    *,
    timed: bool = False,
    find_slow: bool = False,
) -> ExtremeCheck:
    x = Tensor("x", SHAPE, "float32")
    item = ValidationItem("m.kt", extremes=True, timed=timed, find_slow=find_slow, first_extreme=first_extreme)
    run: Any = ValidationRun.__new__(ValidationRun)
    run.directory, run.conditions, run.item, run.once_ms = tmp_path, ValidationContext(threads=1), item, once_ms
    run.manifest, run.combination = manifest(calling("add", [x], [x])), Combination((x,), (x,))
    run.inputs, run.has_flushed, run.board = InputSets(item, [x], tmp_path), False, ""
    check = ExtremeCheck(run)
    vars(check)["_spreading"] = 0  # there is no file to read kernels from
    check.start(cast(Any, tuned), [cast(Any, other)])
    return check


def test_a_process_that_ends_on_extremes_is_wrong(tmp_path: Path) -> None:
    check = started(tmp_path, Process("tuned", ends_on="inputs 3.npz"), Process("onnxruntime"))
    assert set(check.ended) == {"tuned"}
    found = check.compare(NOTHING_COMPARED)
    assert found.compared == NAMES[:2]
    assert found.disagreement == "it does not run: it ended by SIGSEGV, on large inputs"
    assert found.wrong_on == "large inputs"


def test_slow_networks_run_on_the_set_that_was_wrong_before(tmp_path: Path) -> None:
    slow = [Process("tuned", took_ms=2000.0), Process("onnxruntime")]
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    assert started(tmp_path / "a", *slow).compare(NOTHING_COMPARED).compared == NAMES[:1]
    check = started(tmp_path / "b", *slow, first_extreme=NAMES[-2])
    assert check.compare(NOTHING_COMPARED).compared == (NAMES[-2],)


@pytest.mark.parametrize(("took_ms", "sets"), [(400.0, 2), (700.0, 2), (800.0, 1), (374.0, 3), (10.0, len(NAMES))])
@pytest.mark.parametrize("asked", [{}, {"timed": True}, {"find_slow": True}])
def test_all_runs_together_take_a_second_and_a_half(
    tmp_path: Path, took_ms: float, sets: int, asked: dict[str, bool]
) -> None:
    """Whoever is timed afterwards has ordinary inputs again."""
    both = [Process(name, took_ms=took_ms) for name in ("tuned", "onnxruntime")]
    assert len(started(tmp_path, *both, **asked).compare(NOTHING_COMPARED).compared) == sets
    for each in both:
        assert each.turns == sets + bool(asked)
        assert each.inputs.endswith("inputs 0.npz") == bool(asked)


@pytest.mark.parametrize(("once_ms", "limit_s"), [(1.0, 10.0), (200.0, 10.0), (1000.0, 50.0)])
def test_a_run_is_ended_after_fifty_usual_ones(tmp_path: Path, once_ms: float, limit_s: float) -> None:
    both = [Process("tuned"), Process("onnxruntime")]
    started(tmp_path, *both, once_ms={"onnxruntime": once_ms})
    assert both[0].limit_s == both[1].limit_s == limit_s


def test_nothing_is_compared_without_a_reference(tmp_path: Path) -> None:
    other = Process("openvino")
    check = started(tmp_path, Process("tuned"), other)
    assert check.compare(NOTHING_COMPARED).compared == ()
    assert other.turns == 0


@pytest.mark.parametrize(
    ("program", "ops", "found"),
    [
        ("winograd_blocked.1:4x16", ("Conv",), True),
        ("vectors.1:16x32", ("Conv", "Relu"), False),
        ("", ("ConvTranspose",), True),
        ("", ("Transpose", "Conv"), False),
        ("", ("MultiHeadAttention",), True),
        ("", (), False),
    ],
)
def test_kernels_that_spread_nan(program: str, ops: tuple[str, ...], found: bool) -> None:
    record = CallRecord(place=0, kernel="k", nodes=tuple(SourceNode(op, op) for op in ops), program=program)
    assert spreads(record) == found


@pytest.mark.parametrize(("op", "hidden"), [("MaxPool", True), ("LSTM", True), ("Relu", False), ("AveragePool", False)])
def test_operators_that_hide_nan(op: str, hidden: bool) -> None:
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["n"]), helper.make_node(op, ["n"], ["y"])], "g", [], [])
    assert hides_nan(helper.make_model(graph)) == hidden


def test_another_type_or_shape_is_left_as_it_is() -> None:
    expected = np.full((1, 1, 3, 3), np.nan, np.float32)
    for output in (expected.astype(np.float64), expected[:, :, :2]):
        assert settled(output, expected, REACH, hides_nan=True) is output


def test_what_a_model_quantises_is_not_compared_where_it_is_no_number(tmp_path: Path) -> None:
    found = validated(tmp_path, "wrong for NaN", "quantises")
    assert not found.disagreement
    assert "inputs with one NaN" not in found.extremes


@pytest.mark.parametrize("unclear", [{"doubtful": "rounding moves it"}, {"disagreement": "it differs"}])
def test_no_second_opinion_where_ordinary_inputs_are_not_clear(tmp_path: Path, unclear: dict[str, str]) -> None:
    other = Process("onnxruntime")
    check = started(tmp_path, Process("tuned", added=2.0), other)
    turns = other.turns
    found = check.compare(NOTHING_COMPARED._replace(**unclear))
    assert not found.disagreement
    assert NAMES[0] not in found.compared
    assert other.turns == turns
