"""The comparison on extreme inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from kintune.errors import EngineError
from kintune.runtime.extreme_inputs import extreme_inputs
from kintune.runtime.hybrid_package import write_hybrid
from kintune.runtime.inputs import Array, load_inputs
from kintune.validate.baseline_protocol import BaselineTurn
from kintune.validate.extreme_check import ExtremeCheck, hides_nan, settled, spreads
from kintune.validate.input_sets import InputSets
from kintune.validate.numerics import NOTHING_COMPARED
from kintune.validate.plain_outputs import save_outputs
from kintune.validate.validation import validate_executable
from kintune.validate.validation_run import FAST, ValidationRun
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
SHAPE = (1, 3, 5)
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
    """A process whose network computes a function of its input; it counts its turns.

    With noise its values are larger by a share of `moves`.
    """

    def __init__(
        self,
        name: str,
        computes: Callable[[Array], Any] = np.copy,
        *,
        ends_on: str = "",
        took_ms: float = 1.0,
        moves: float = 0.0,
        denormals: bool = False,
        starts: bool = True,
    ) -> None:
        self.name, self.turns, self.started, self.limit_s, self.inputs = name, 0, 0, 0.0, ""
        self.met_denormals = False
        self._computes, self._moves = computes, moves
        self._ends_on, self._took_ms, self._denormals, self._starts = ends_on, took_ms, denormals, starts

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to end."""

    def prepare(self, seconds: float) -> None:
        self.started += 1
        if not self._starts:
            raise EngineError("it does not start")

    def turn(self, turn: BaselineTurn, seconds: float) -> tuple[float, ...]:
        self.turns, self.limit_s, self.inputs = self.turns + 1, seconds, str(turn.inputs)
        if self._ends_on and str(turn.inputs).endswith(self._ends_on):
            raise WorkerDied("it ended by SIGSEGV")
        self.met_denormals |= self._denormals
        with np.errstate(over="ignore"):
            values = np.asarray(self._computes(load_inputs(str(turn.inputs))["x"]), np.float32)
            values *= np.float32(1 + self._moves * (turn.noise > 0))
        save_outputs(Path(str(turn.outputs)), [values])
        return (self._took_ms,)


def twice(x: Array) -> Array:
    return x * np.float32(2)


def started(
    tmp_path: Path,
    tuned: Process,
    other: Process,
    first_extreme: str = "",
    once_ms: Mapping[str, float] = {},
    *,
    timed: bool = False,
    find_slow: bool = False,
    others: Sequence[Process] = (),
    hybrid: Hybrid | None = None,
    keep_denormals: bool = False,
    has_flushed: bool = False,
    shapes: Sequence[dict[str, tuple[int, ...]]] = (),
) -> ExtremeCheck:
    """A check that has started; `others` are what it may start besides."""
    x, count = Tensor("x", SHAPE, "float32"), Tensor("count", (3,), "int32")
    item = ValidationItem("m.kt", extremes=True, timed=timed, find_slow=find_slow, first_extreme=first_extreme)
    run: Any = ValidationRun.__new__(ValidationRun)
    run.directory, run.conditions, run.item, run.once_ms = tmp_path, ValidationContext(threads=1), item, once_ms
    plain = manifest(calling("add", [x], [x]))
    run.manifest = msgspec.structs.replace(plain, hybrid=hybrid, keep_denormals=keep_denormals)
    run.inputs, run.has_flushed, run.board = InputSets(item, [x, count], tmp_path, shapes), has_flushed, ""
    run.combination, run.skipped = Combination((x,), (x,)), {}
    run.process = lambda *_, label, **__: next(each for each in others if each.name == label)
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


@pytest.mark.parametrize(
    ("took_ms", "sets"), [(400.0, 2), (700.0, 2), (750.5, 1), (800.0, 1), (374.0, 3), (10.0, len(NAMES))]
)
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


@pytest.mark.parametrize(("took_ms", "first_extreme"), [(800.0, ""), (800.0, NAMES[-2])])
def test_slow_networks_run_on_all_other_shapes_and_one_set_of_extremes(
    tmp_path: Path, took_ms: float, first_extreme: str
) -> None:
    shapes: list[dict[str, tuple[int, ...]]] = [{"x": (1, 3, length), "count": (3,)} for length in (1, 2, 3)]
    both = [Process(name, took_ms=took_ms) for name in ("tuned", "onnxruntime")]
    check = started(tmp_path, *both, first_extreme, shapes=shapes)
    compared = check.compare(NOTHING_COMPARED).compared
    assert len(compared) == len(shapes) + 1
    assert compared[-1] == (first_extreme or NAMES[0])


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
    check = started(tmp_path, Process("tuned", lambda x: x + 2), other)
    turns = other.turns
    found = check.compare(NOTHING_COMPARED._replace(**unclear))
    assert not found.disagreement
    assert NAMES[0] not in found.compared
    assert other.turns == turns


@pytest.mark.parametrize(("reference", "starts"), [("onnxruntime", 1), ("torch", 0)])
def test_onnxruntime_as_it_is_timed_runs_once_on_each_set_and_only_beside_itself(
    tmp_path: Path, reference: str, starts: int
) -> None:
    fast = Process(FAST)
    check = started(tmp_path, Process("tuned", twice), Process(reference), others=[fast])
    assert check.compare(NOTHING_COMPARED).wrong_on == "inputs that are all equal"
    assert (fast.started, fast.turns) == (starts, starts * len(NAMES))


def test_what_does_not_start_is_not_started_again(tmp_path: Path) -> None:
    fast = Process(FAST, starts=False)
    check = started(tmp_path, Process("tuned", twice), Process("onnxruntime"), others=[fast])
    assert check.compare(NOTHING_COMPARED).disagreement
    assert fast.started == 1


@pytest.mark.parametrize(("flushes", "wrong"), [({"computes": twice}, False), ({"starts": False}, True), ({}, True)])
def test_where_denormals_occurred_a_reference_that_flushes_them_decides_if_it_runs(
    tmp_path: Path, flushes: dict[str, Any], wrong: bool
) -> None:
    others = [Process("flushing, on extreme inputs", **flushes), Process(FAST)]
    check = started(tmp_path, Process("tuned", twice, denormals=True), Process("onnxruntime"), others=others)
    found = check.compare(NOTHING_COMPARED)
    assert found.disagreement.startswith("output 'x': ") == wrong
    assert bool(found.disagreement) == wrong
    assert others[0].started == 1
    assert found.compared[:2] == (NAMES[:1] if wrong else NAMES[:2])


@pytest.mark.parametrize(
    ("times", "moves", "quantises", "wrong"),
    [
        (1.04, 0.0, False, True),
        (1.04, 0.0, True, False),  # some values are one step apart
        (1.06, 0.0, True, True),
        (1.06, 0.005, False, False),  # no more than sixteen times what rounding moves
        (1.1, 0.005, False, True),
    ],
)
def test_flips_and_another_order_of_sums_tell_nothing(
    tmp_path: Path, times: float, moves: float, quantises: bool, wrong: bool
) -> None:
    reference = Process("onnxruntime", moves=moves)
    check = started(tmp_path, Process("tuned", lambda x: x * np.float32(times)), reference, others=[Process(FAST)])
    vars(check)["_quantises"] = quantises
    found = check.compare(NOTHING_COMPARED)
    assert bool(found.disagreement) == wrong
    assert found.compared == NAMES[:1]  # zeros are right, and nothing is said of the others


@pytest.mark.parametrize("is_hybrid", [False, True])
def test_integers_that_may_decide_extents_stay_where_onnxruntime_runs_a_part(tmp_path: Path, is_hybrid: bool) -> None:
    hybrid = Hybrid((), {"Identity": 1}, {}, ()) if is_hybrid else None
    check = started(tmp_path, Process("tuned"), Process("onnxruntime"), hybrid=hybrid)
    counts = [each.arrays["count"].tolist() for each in check._sets.values()]
    assert (len({tuple(each) for each in counts}) == 1) == is_hybrid


@pytest.mark.parametrize("more", [{"keep_denormals": True}, {"has_flushed": True}])
def test_a_reference_flushes_denormals_only_if_the_result_does_and_it_does_not_yet(
    tmp_path: Path, more: dict[str, bool]
) -> None:
    others = [Process("flushing, on extreme inputs", twice), Process(FAST)]
    tuned = Process("tuned", twice, denormals=True)
    check = started(tmp_path, tuned, Process("onnxruntime"), others=others, **more)  # type: ignore[arg-type]
    assert check.compare(NOTHING_COMPARED).disagreement
    assert others[0].started == 0


def test_a_reference_that_hides_nan_is_believed_on_ordinary_inputs(tmp_path: Path) -> None:
    check = started(tmp_path, Process("tuned", lambda x: x * np.nan), Process("onnxruntime"), others=[Process(FAST)])
    vars(check)["_hides_nan"] = True
    found = check.compare(NOTHING_COMPARED)
    assert found.wrong_on == NAMES[0]
    assert found.compared == NAMES[-3:]


def _infinite_at_first(x: Array) -> Array:
    x[:, 0, 0] = np.inf
    return x


def test_around_infinities_only_outputs_on_extreme_values_are_left_out(tmp_path: Path) -> None:
    tuned = Process("tuned", lambda x: _infinite_at_first(x + 1))
    check = started(tmp_path, tuned, Process("onnxruntime", _infinite_at_first), others=[Process(FAST)])
    vars(check)["_spreading"] = 1
    found = check.compare(NOTHING_COMPARED)
    assert found.wrong_on == NAMES[0]
    assert set(NAMES) - set(found.compared) >= set(NAMES[:2])
    assert set(found.compared) >= set(NAMES[-3:])


@pytest.mark.parametrize("spreading", [0, 1])
@pytest.mark.parametrize("hides", [False, True])
def test_kernels_may_spread_nan_but_where_the_model_has_it_nothing_is_said(
    tmp_path: Path, spreading: int, hides: bool
) -> None:
    def computes(x: Array) -> Array:
        return np.where(np.isnan(x), 0, x) if hides else x + 0 * x.sum()

    tuned = Process("tuned", lambda x: computes(x) if np.isnan(x).any() else x)
    check = started(tmp_path, tuned, Process("onnxruntime"), others=[Process(FAST)])
    vars(check)["_spreading"] = spreading
    found = check.compare(NOTHING_COMPARED)
    assert found.wrong_on == ("" if spreading else "inputs with one NaN")
    assert set(NAMES) - set(found.compared) == ({"inputs with one NaN"} if hides or not spreading else set())


def test_who_has_ended_takes_no_time(tmp_path: Path) -> None:
    both = [Process("tuned", ends_on="inputs 1.npz"), Process("onnxruntime", took_ms=750.0)]
    started(tmp_path, *both)
    assert [each.turns for each in both] == [1, 3]  # until it is more than a second and a half


@pytest.mark.parametrize("greatest", [np.float64(1e15), np.float16(2.0**14)])
def test_the_greatest_ordinary_value_is_compared(greatest: np.floating[Any]) -> None:
    expected = np.array([greatest, np.nextafter(greatest, type(greatest)(np.inf))])
    assert settled(np.full_like(expected, np.inf), expected).tolist() == [np.inf, expected[1]]
