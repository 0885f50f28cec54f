"""Networks whose single run is out of proportion are profiled, and the parts without a fast kernel are named."""

from __future__ import annotations

from pathlib import Path

import msgspec
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.core.kernel_call import SourceNode
from kintune.core.profile import IN_ONNXRUNTIME, ComparedGroup, OnnxProfile, Profile, ProfiledCall
from kintune.core.stage_requests import ValidationContext, ValidationItem
from kintune.core.stage_results import SlowPart, ValidationResult
from kintune.core.verdict import Verdict
from kintune.errors import EngineError
from kintune.models.onnx_nodes import describe_node
from kintune.profiling import slow_parts
from kintune.profiling.slow_parts import find_slow_parts, is_out_of_proportion, validate_with_slow_parts
from kintune.profiling.timing import ProfileRequest
from kintune.testing.small_onnx import write_small_onnx

CONDITIONS = ValidationContext(threads=2)
LONG = {"tuned": 700.0, "onnxruntime": 30.0}


def call(place: int, op: str, us: float, **changes: object) -> ProfiledCall:
    name = f"n{place}"
    made = ProfiledCall(place=place, kernel=f"k{place}", title=name, nodes=(SourceNode(name, op),), us=us, threads=2)
    return msgspec.structs.replace(made, **changes)


def profiled(*calls: ProfiledCall, theirs: dict[int, float] | None = None, run_ms: float | None = None) -> Profile:
    """A profile; `theirs` has the microseconds in onnxruntime of the calls that stand beside its nodes."""
    groups = [
        ComparedGroup((place,), (place,), next(c.us for c in calls if c.place == place), us)
        for place, us in (theirs or {}).items()
    ]
    kernels_ms = sum(each.us for each in calls) / 1e3
    run_ms = kernels_ms if run_ms is None else run_ms
    theirs_ms = sum(each.onnxruntime_us for each in groups) / 1e3
    beside = OnnxProfile(version="1", run_ms=theirs_ms, nodes_us=0.0, matched_us=0.0, nodes=(), groups=tuple(groups))
    return Profile(
        executable="m.kt", model="m", cpu="", threads=2, shapes={}, runs=1, run_ms=run_ms, p10_ms=run_ms,
        p90_ms=run_ms, kernels_ms=kernels_ms, gap_ms=0.0, copies=0, copied_bytes=0, peak=None, prefix="",
        calls=calls, onnxruntime=None if theirs is None else beside, timeline=(),
    )  # fmt: skip


def found(profile: Profile, once_ms: dict[str, float] = LONG, **item: object) -> tuple[SlowPart, ...]:
    return find_slow_parts(CONDITIONS, ValidationItem("m.kt", **item), once_ms, lambda _: profile)


def test_what_is_far_faster_in_onnxruntime_is_named() -> None:
    parts = found(profiled(call(0, "MatMulInteger", 620e3), call(1, "Relu", 80e3), theirs={0: 25e3, 1: 70e3}))
    assert parts == (SlowPart(("MatMulInteger 'n0'",), "n0", 620e3, 25e3),)


def test_parts_that_are_slow_together_are_all_named() -> None:
    naive = [call(at, "Conv", 100e3, gflops=0.9) for at in range(6)]
    assert [part.title for part in found(profiled(*naive, call(9, "Relu", 50e3)))] == [f"n{at}" for at in range(6)]
    beside = profiled(*naive, theirs=dict.fromkeys(range(6), 10e3))
    assert len(found(beside)) == 6
    small = [call(at, "Conv", 10e3, gflops=0.9) for at in range(60)]
    assert len(found(profiled(*small))) == 3


def test_a_long_run_that_is_short_the_second_time_is_not_slow() -> None:
    calls = [call(at, "Relu", 40e3) for at in range(16)]
    theirs = dict.fromkeys(range(16), 30e3)
    runs = iter([profiled(*calls, theirs=theirs, run_ms=9000.0), profiled(*calls, theirs=theirs)])
    long = {"tuned": 9000.0, "onnxruntime": 480.0}
    assert find_slow_parts(CONDITIONS, ValidationItem("m.kt"), long, lambda _: next(runs)) == ()


def test_calls_of_a_group_go_together_and_onnxruntimes_own_stay() -> None:
    calls = (call(0, "Conv", 600e3), call(1, "Mul", 20e3), call(2, "Add", 5e3, where=IN_ONNXRUNTIME))
    profile = profiled(*calls, theirs={})
    group = ComparedGroup((0, 1, 2), (0,), 625e3, 25e3)
    beside = msgspec.structs.replace(profile.onnxruntime, groups=(group,))
    (part,) = found(msgspec.structs.replace(profile, onnxruntime=beside))
    assert part == SlowPart(("Conv 'n0'", "Mul 'n1'"), "n0", 625e3, 25e3)


def test_the_whole_network_where_no_part_explains_it() -> None:
    calls = [call(at, "Relu", 40e3) for at in range(16)]
    (part,) = found(profiled(*calls, theirs=dict.fromkeys(range(16), 15000.0)))
    assert part == SlowPart(("*",), "the whole network (n0: 40 ms)", 640e3, 240e3)


def test_parts_that_explain_little_are_not_taken_for_the_cause() -> None:
    """Calls that the compiler has inserted, or of which no node is known, stand beside nothing in onnxruntime."""
    calls = (call(0, "Mul", 640e3), call(1, "Cast", 650e3, inserted=True), call(2, "Cast", 610e3, nodes=()))
    (part,) = found(profiled(*calls, theirs={0: 32e3}))
    assert part.nodes == ("*",)
    (part,) = found(profiled(*calls[:1], theirs={0: 32e3}))
    assert part.nodes == ("Mul 'n0'",)


@pytest.mark.parametrize("theirs", [{0: 400e3}, {0: 620e3}])
def test_what_takes_no_twice_as_long_stays(theirs: dict[int, float]) -> None:
    assert found(profiled(call(0, "MatMul", 620e3), theirs=theirs)) == ()


def test_a_small_part_stays_whatever_it_takes() -> None:
    calls = (call(0, "MatMul", 600e3), call(1, "TopK", 40e3))
    assert found(profiled(*calls, theirs={0: 590e3, 1: 1e3})) == ()


def test_without_onnxruntime_products_that_run_as_loops_are_named_with_their_rate() -> None:
    slow, memory = call(0, "Conv", 600e3, gflops=1.2), call(1, "MatMul", 300e3, gflops=1.2, gbytes_per_s=9.0)
    other, fast = call(2, "Resize", 400e3, gflops=0.5), call(3, "Conv", 400e3, gflops=90.0)
    assert found(profiled(slow, memory, other, fast), {"tuned": 1700.0}) == (
        SlowPart(("Conv 'n0'",), "n0", 600e3, None, 1.2),
    )


def test_nodes_are_named_as_messages_name_them(tmp_path: Path) -> None:
    path = write_small_onnx(tmp_path / "m.onnx")
    node = onnx.load(path).graph.node[0]
    known = node.name or node.output[0]
    slow = call(0, node.op_type, 600e3, nodes=(SourceNode(known, node.op_type),))
    (part,) = found(profiled(slow, theirs={0: 9e3}), onnx=str(path))
    assert part.nodes == (describe_node(node),)


def test_one_that_cannot_be_profiled_has_none(caplog: pytest.LogCaptureFixture) -> None:
    def fail(request: ProfileRequest) -> Profile:
        assert (request.runs, request.rounds) == (1, 1), "one run of each takes long enough"
        raise EngineError("it died")

    assert find_slow_parts(CONDITIONS, ValidationItem("m.kt"), {"tuned": 4000.0}, fail) == ()
    assert "could not be profiled: it died" in caplog.text


@pytest.mark.parametrize(
    ("once_ms", "flops", "suspect"),
    [
        ({"tuned": 700.0, "onnxruntime": 30.0}, 1e12, True),
        ({"tuned": 7.0, "onnxruntime": 3.0}, 1e9, False),  # 4 ms are lost in noise
        ({"tuned": 700.0, "onnxruntime": 600.0}, 1e12, False),
        ({"tuned": 700.0, "onnxruntime": 600.0}, 1e8, True),  # both are slow
        ({"tuned": 700.0}, 1e8, True),
        ({"tuned": 15.0}, 1e3, False),
        ({}, 1e8, False),
    ],
)
def test_a_run_is_judged_beside_others_and_by_its_arithmetic(
    once_ms: dict[str, float], flops: float, *, suspect: bool
) -> None:
    assert is_out_of_proportion(once_ms, flops, 2) == suspect


@given(st.floats(0.0, 1e5), st.floats(0.01, 1e5), st.floats(0.0, 1e13), st.integers(1, 64))
def test_a_faster_run_is_never_more_suspect(ours: float, theirs: float, flops: float, threads: int) -> None:
    beside = {"tuned": ours, "onnxruntime": theirs}
    if not is_out_of_proportion(beside, flops, threads):
        assert not is_out_of_proportion({**beside, "tuned": ours / 2}, flops, threads)


@pytest.mark.parametrize(("find_slow", "board"), [(False, ""), (True, "127.0.0.1:9090"), (True, "")])
def test_only_what_is_asked_for_is_looked_for(monkeypatch: pytest.MonkeyPatch, *, find_slow: bool, board: str) -> None:
    part = SlowPart(("*",), "", 1.0)
    answer = ValidationResult({}, 0.0, 0.0, Verdict.RIGHT, (), {}, once_ms=LONG)
    monkeypatch.setattr(slow_parts, "validate", lambda *_: msgspec.msgpack.encode(answer))
    monkeypatch.setattr(slow_parts, "find_slow_parts", lambda *_: (part,))
    monkeypatch.setattr(slow_parts, "located_item", lambda item: item)
    item = ValidationItem("m.kt", find_slow=find_slow)
    given = validate_with_slow_parts(msgspec.msgpack.encode(CONDITIONS), msgspec.msgpack.encode(item), board)
    result = msgspec.msgpack.decode(given, type=ValidationResult)
    assert result.slow == ((part,) if find_slow and not board else ())


@pytest.mark.parametrize(
    "result",
    [
        ValidationResult({}, None, None, Verdict.WRONG, (), {}, disagreement="it differs"),
        ValidationResult({}, None, None, Verdict.NOT_COMPARED, (), {}, doubtful="rounding moves it"),
    ],
)
def test_what_is_not_handed_out_is_not_profiled(monkeypatch: pytest.MonkeyPatch, result: ValidationResult) -> None:
    monkeypatch.setattr(slow_parts, "validate", lambda *_: msgspec.msgpack.encode(result))
    monkeypatch.setattr(slow_parts, "find_slow_parts", lambda *_: pytest.fail("profiled"))
    item = ValidationItem("m.kt", find_slow=True, may_hand_over=True)
    validate_with_slow_parts(msgspec.msgpack.encode(CONDITIONS), msgspec.msgpack.encode(item))
