from __future__ import annotations

import json
import os
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from kintune.core.call_times import KernelTimes
from kintune.core.stage_requests import ValidationContext, ValidationItem
from kintune.core.stage_results import ValidationResult
from kintune.errors import EngineError, InputError, NumericsError
from kintune.runtime.package import Package, PackageVariant, write_package
from kintune.runtime.plan_format import decode_plan
from kintune.tuning.job.handover import returned_note
from kintune.validate import result_choice, validation_run
from kintune.validate.baseline_protocol import BaselineContext, BaselineTurn, ProfileTurn
from kintune.validate.validation import validate
from kintune.validate.validation_run import SLOW_UNTUNED_SECONDS
from kintune_runtime.library import checksum

pytestmark = pytest.mark.tvm

QUICK = ValidationContext(threads=1, rounds=2, min_rounds=1, runs=2, race_seconds=0.0)


class Files:
    """A tiny network: its ONNX file, a good executable of it, and one with another first weight."""

    def __init__(self, directory: Path) -> None:
        from tests.support.tiny_network import make_tiny_network

        self.onnx, good, _ = make_tiny_network(directory)
        self.good, self.wrong = str(directory / "good.kt"), str(directory / "wrong.kt")
        good.save(self.good)
        make_tiny_network(directory, skew=0.125).executable.save(self.wrong)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Files]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TVM_NUM_THREADS", "1")
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        yield Files(tmp_path_factory.mktemp("network"))


def validate_files(context: ValidationContext = QUICK, **item: Any) -> ValidationResult:
    encoded = validate(msgspec.msgpack.encode(context), msgspec.msgpack.encode(ValidationItem(**item)))
    return msgspec.msgpack.decode(encoded, type=ValidationResult)


def test_a_good_network_is_proven_against_all_who_run(files: Files) -> None:
    result = validate_files(
        tuned=files.good, untuned=files.good, onnx=str(files.onnx), compare=("onnxruntime", "torch")
    )
    assert result.compared_with == ("untuned", "onnxruntime")
    assert result.within_tolerance
    assert result.disagreement == ""
    assert result.max_abs_error is not None
    assert result.max_abs_error < 1e-4
    assert result.skipped == {"torch": "the model is not a PyTorch exported program"}
    assert {name: len(times) for name, times in result.latency_ms.items()} == {
        "untuned": 2,
        "tuned": 2,
        "onnxruntime": 2,
    }


def test_what_is_not_timed_is_only_compared(files: Files) -> None:
    good = validate_files(tuned=files.good, untuned=files.good, onnx=str(files.onnx), compare=(), timed=False)
    assert good.compared_with == ("untuned", "onnxruntime")
    assert good.within_tolerance
    assert good.latency_ms == {}
    wrong = validate_files(tuned=files.wrong, onnx=str(files.onnx), timed=False)
    assert wrong.within_tolerance is False
    assert wrong.compared_with == ("onnxruntime",)


def test_what_is_beside_is_timed_in_turns(files: Files) -> None:
    found = validate_files(tuned=files.good, beside=files.wrong, onnx=str(files.onnx), timed=False)
    assert found.compared_with == ("onnxruntime",)
    assert found.within_tolerance
    assert found.latency_ms == {}
    assert list(map(len, found.beside_ms)) == [1, 1]  # rounds
    gone = validate_files(tuned=files.good, beside=f"{files.good}.gone", onnx=str(files.onnx), timed=False)
    assert gone.beside_ms == ()
    assert gone.within_tolerance
    assert set(gone.skipped) == {"beside"}


def test_a_model_that_no_reference_can_run_is_compared_with_nothing(files: Files, tmp_path: Path) -> None:
    (tmp_path / "bad.onnx").write_bytes(b"\x08\x08garbage")
    result = validate_files(tuned=files.good, onnx=str(tmp_path / "bad.onnx"), timed=False)
    assert result.compared_with == ()
    assert result.within_tolerance is None
    assert set(result.skipped) == {"onnxruntime"}


def test_a_slow_untuned_network_does_not_run_beside_a_runtime_that_runs_the_model(files: Files) -> None:
    slow: dict[str, Any] = {"tuned": files.good, "untuned": files.good, "untuned_s": 2 * SLOW_UNTUNED_SECONDS}
    beside = validate_files(onnx=str(files.onnx), compare=("onnxruntime",), **slow)
    assert set(beside.latency_ms) == {"tuned", "onnxruntime"}
    assert beside.compared_with == ("onnxruntime",)
    assert beside.skipped["untuned"] == "one run takes about 1.0 s"
    assert set(validate_files(compare=(), **slow).latency_ms) == {"tuned", "untuned"}


class Slowing:
    """A process on a machine that takes twice as long for everything once the untuned network had a timed turn."""

    pace = 1.0
    outputs: tuple[str, ...] = ()

    def __init__(self, name: str, _: BaselineContext) -> None:
        self.name = name

    def __enter__(self) -> Slowing:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def prepare(self, seconds: float) -> None:
        """Nothing to load."""

    def close(self) -> None:
        """Nothing to end."""

    def turn(self, turn: BaselineTurn, _: float) -> tuple[float, ...]:
        """The tuned network is a tenth faster."""
        if turn.outputs is not None:
            np.savez(turn.outputs, **{str(at): np.zeros(1, np.float32) for at in range(len(Slowing.outputs))})
        milliseconds = Slowing.pace * (0.9 if self.name == "tuned" else 1.0)
        if self.name == "untuned" and turn.warm_seconds:
            Slowing.pace = 2.0
        return (milliseconds,) * turn.runs

    def profile_calls(self, _turn: ProfileTurn, _seconds: float) -> KernelTimes:
        """It tells nothing of its kernels."""
        raise EngineError("it has no kernels")


def test_tuned_and_untuned_are_timed_in_alternation(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation_run, "BaselineProcess", Slowing)
    monkeypatch.setattr(Slowing, "pace", 1.0)
    monkeypatch.setattr(Slowing, "outputs", tuple(t.name for t in Package.open(files.good).manifest.outputs))
    conditions = msgspec.structs.replace(QUICK, rounds=4, min_rounds=4)
    found = validate_files(conditions, tuned=files.good, untuned=files.good, compare=())
    assert found.calls is None
    latency = found.latency_ms
    assert len(latency["untuned"]) == len(latency["tuned"])
    assert statistics.median(latency["tuned"]) < statistics.median(latency["untuned"])


def test_kernel_calls_are_timed_inside_the_network(files: Files) -> None:
    calls = validate_files(tuned=files.good, compare=()).calls
    assert calls is not None
    assert calls.us
    assert all(us >= 0 for us in calls.us.values())
    assert {place for place, _, _ in calls.timeline} == set(calls.us)


def test_wrong_numbers_are_reported_with_place_and_reference(files: Files) -> None:
    result = validate_files(tuned=files.wrong, onnx=str(files.onnx), compare=("onnxruntime",))
    assert result.within_tolerance is False
    assert result.max_abs_error is not None
    assert result.max_abs_error > 0.01
    assert result.disagreement.startswith("output 'y': ")
    assert result.disagreement.endswith("(onnxruntime)")
    assert "more than 4 times what rounding moves" in result.disagreement
    assert result.noise is not None
    assert 0 < result.noise < 1e-4
    assert result.basis == ""
    assert set(result.latency_ms) == {"tuned", "onnxruntime"}


def alone_of(files: Files, path: Path, *names: str) -> str:
    """The good network, its two outputs (which differ) said to be those of a subgraph's two programs."""
    package = Package.open(files.good)
    outputs = tuple(msgspec.structs.replace(t, name=n) for t, n in zip(package.manifest.outputs, names, strict=True))
    (encoded,) = package.variants[0].plans
    stored = decode_plan(encoded.plan, checksum)
    plan = stored._replace(plan=msgspec.structs.replace(stored.plan, outputs=outputs)).encoded(checksum)
    manifest = msgspec.structs.replace(package.manifest, outputs=outputs)
    write_package(path, [PackageVariant(manifest, (encoded._replace(plan=plan),))], package.weights)
    return str(path)


def test_what_only_rounding_excuses_has_its_subgraphs_compared_alone(files: Files, tmp_path: Path) -> None:
    from tests.support.tiny_network import make_tiny_network

    make_tiny_network(tmp_path, skew=1e-7).executable.save(tmp_path / "near.kt")
    strict = msgspec.structs.replace(QUICK, rtol=0.0, atol=0.0)
    common: dict[str, Any] = {
        "tuned": str(tmp_path / "near.kt"), "onnx": str(files.onnx), "timed": False, "left_out": ("z",),
        "titles": {"w": "net_w (Gemm 'a')", "z": "net_z"},
    }  # fmt: skip
    right = validate_files(strict, **common)
    assert right.within_tolerance
    assert right.basis
    assert (right.alone, right.not_alone) == ((), {"net_z": "takes long untuned"})
    wrong = validate_files(strict, **common, each_alone=(alone_of(files, tmp_path / "wrong.kt", "w 0", "w 1"),))
    assert wrong.within_tolerance is False
    assert wrong.disagreement.startswith("net_w (Gemm 'a') by itself, on what it gets in the network: wrong numbers")
    assert set(wrong.wrong_alone) == {"w"}
    again = validate_files(strict, **common, each_alone=(str(tmp_path / "wrong.kt"),), only_alone=True)
    assert (again.wrong_alone, again.disagreement) == (wrong.wrong_alone, wrong.disagreement)
    assert (again.compared_with, again.once_ms) == ((), {})
    assert right.with_alone(again).within_tolerance is False
    (tmp_path / "broken.kt").write_bytes(b"PK")
    # what is broken is not looked at: within tolerance as it is
    without = validate_files(**common, each_alone=(str(tmp_path / "broken.kt"),))
    assert without.within_tolerance
    assert (without.alone, without.basis) == ((), "")


def test_the_tolerance_decides(files: Files) -> None:
    loose = msgspec.structs.replace(QUICK, atol=100.0)
    inputs = Path(files.good).with_name("bias.npz")
    np.savez(inputs, x=np.ones((4, 48), np.float32), bias=np.full(10, 1e3, np.float32))
    result = validate_files(loose, tuned=files.wrong, untuned=files.good, inputs=(str(inputs),), compare=())
    assert result.within_tolerance
    assert result.max_abs_error is not None
    assert result.max_abs_error > 0.01


def test_all_sets_of_inputs_are_compared_and_the_first_is_timed(files: Files, tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("zeros.npz", "more.npz", "ones.npz")]
    for path, value in zip(paths, (0.0, 0.0, 1.0), strict=True):  # of zeros, no weight matters
        np.savez(path, x=np.full((4, 48), value, np.float32), bias=np.full(10, 0.5, np.float32))
    common: dict[str, Any] = {"tuned": files.wrong, "onnx": str(files.onnx), "compare": ("onnxruntime",)}
    named = tuple(Path(path).name for path in paths)
    assert validate_files(**common, inputs=tuple(paths[:2]), input_names=named[:2]).within_tolerance
    result = validate_files(**common, inputs=tuple(paths), input_names=named)
    assert result.within_tolerance is False
    assert result.disagreement.endswith("(onnxruntime, ones.npz)")
    assert set(result.latency_ms) == {"tuned", "onnxruntime"}
    good = validate_files(tuned=files.good, onnx=str(files.onnx), inputs=tuple(paths), input_names=named, timed=False)
    assert good.within_tolerance


def test_without_a_reference_nothing_is_claimed(files: Files) -> None:
    result = validate_files(tuned=files.good, compare=("onnxruntime", "openvino"))
    assert result.within_tolerance is None
    assert result.max_abs_error is None
    assert result.compared_with == ()
    assert set(result.skipped) == {"onnxruntime", "openvino"}


def test_what_cannot_run_beside_it_is_skipped_with_the_reason(files: Files, tmp_path: Path) -> None:
    (tmp_path / "bad.onnx").write_bytes(b"\x08\x08garbage")
    (tmp_path / "bad.kt").write_bytes(b"PK")
    result = validate_files(
        tuned=files.good,
        untuned=str(tmp_path / "bad.kt"),
        onnx=str(tmp_path / "bad.onnx"),
        compare=("onnxruntime", "unheard_of"),
    )
    assert set(result.latency_ms) == {"tuned"}
    assert result.skipped["untuned"].endswith("writes one")
    assert result.skipped["unheard_of"].startswith("no runtime to compare with is called 'unheard_of'")
    assert "\n" not in result.skipped["onnxruntime"]


def test_a_tuned_network_that_does_not_run_is_no_proof(files: Files, tmp_path: Path) -> None:
    package = Package.open(files.good)
    ((manifest, (plan,)),) = package.variants
    broken = PackageVariant(manifest, (plan._replace(library=b"none"),))
    write_package(tmp_path / "broken.kt", [broken], package.weights)
    with pytest.raises(NumericsError, match=r"the compiled network does not run: .*bad checksum of its kernels"):
        validate_files(tuned=str(tmp_path / "broken.kt"), compare=())


def test_drawn_numbers_that_may_choose_what_runs_are_named(files: Files, tmp_path: Path) -> None:
    package = Package.open(files.good)
    ((manifest, (plan,)),) = package.variants
    first, *others = manifest.inputs
    chosen = msgspec.structs.replace(manifest, inputs=(msgspec.structs.replace(first, dtype="int64"), *others))
    write_package(tmp_path / "broken.kt", [PackageVariant(chosen, (plan._replace(library=b"none"),))], package.weights)
    hint = rf"does not run with values drawn for {first.name} \(give values .* with --input or --constant\): .*bad"
    with pytest.raises(NumericsError, match=hint):
        validate_files(tuned=str(tmp_path / "broken.kt"), compare=())


def test_wrong_inputs_are_refused_before_anything_runs(files: Files, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.zeros((4, 48), np.float32))
    with pytest.raises(InputError, match=r"x\.npz: input 'bias' is missing"):
        validate_files(tuned=files.good, inputs=(str(tmp_path / "x.npz"),))
    with pytest.raises(InputError, match="no such file"):
        validate_files(tuned=files.good, inputs=(str(tmp_path / "none.npz"),))


def test_threads_are_chosen_for_each_kernel_and_the_file_stays_as_it_is(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The choice itself is that of `thread_choice`; here it is one thread for every call, and is found to be faster."""
    before = Path(files.good).read_bytes()
    seen: list[dict[int, dict[int, float]]] = []

    def choose(times: dict[int, dict[int, float]]) -> dict[int, int]:
        seen.append(times)
        return dict.fromkeys(times[1], 1)

    cores = tuple(sorted(os.sched_getaffinity(0)))
    monkeypatch.setattr(validation_run, "choose_cores", lambda threads: cores[:threads])
    monkeypatch.setattr(result_choice, "choose_thread_counts", choose)
    monkeypatch.setattr(result_choice, "is_faster", lambda *_: True)
    two = msgspec.structs.replace(QUICK, threads=2)
    if len(cores) < 2:
        assert validate_files(two, tuned=files.good, compare=()).thread_counts == ()
        return
    result = validate_files(two, tuned=files.good, untuned=files.good, compare=())
    (times,) = seen
    assert sorted(times) == [1, 2]
    assert times[1].keys() == times[2].keys() != set()
    assert result.thread_counts == (dict.fromkeys(times[1], 1),)
    assert result.within_tolerance
    assert Path(files.good).read_bytes() == before
    monkeypatch.setattr(result_choice, "is_faster", lambda *_: False)
    assert validate_files(two, tuned=files.good, untuned=files.good, compare=()).thread_counts == ()


class Shapes:
    """A network with two combinations of shapes, whose files `good`, `wrong` differ in the second one alone."""

    def __init__(self, folder: Path) -> None:
        import tvm

        from kintune.compiler.graph.executable import build_plans, describe_build
        from kintune.compiler.graph.lower import lower
        from kintune.core.model import Combination
        from kintune.models.importer import load
        from kintune.models.ref import parse_ref
        from kintune.runtime.target import resolve_target
        from kintune.testing.small_onnx import write_small_onnx

        self.onnx = str(write_small_onnx(folder / "small.onnx", is_open=True))
        self.good, self.wrong = str(folder / "good.kt"), str(folder / "wrong.kt")
        target = resolve_target("native", threads=1)
        compiler_target = tvm.target.Target(json.loads(target))
        models = [load(ref) for ref in parse_ref(self.onnx, ["x=1x16x{6,9}x{6,9}"]).each()]
        first, second = (Combination(model.inputs, model.outputs) for model in models)
        manifest = describe_build(
            model_name="small", model_digest="0" * 32, target=target, threads=1, inputs=first.inputs,
            outputs=first.outputs, chosen={}, more=[second],
        )  # fmt: skip
        for path, skew in ((self.good, 0.0), (self.wrong, 0.5)):
            networks = [lower(model.module, compiler_target) for model in models]
            weight, *others = networks[1].weights
            skewed = tvm.runtime.tensor(weight.numpy() + np.float32(skew))
            networks[1] = networks[1]._replace(weights=(skewed, *others))
            build_plans(networks, {}, compiler_target, manifest).save(path)


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shapes]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TVM_NUM_THREADS", "1")
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        yield Shapes(tmp_path_factory.mktemp("shapes"))


def test_each_combination_of_shapes_is_proven(shapes: Shapes) -> None:
    result = validate_files(tuned=shapes.good, untuned=shapes.good, onnx=shapes.onnx, compare=("onnxruntime", "torch"))
    assert result.within_tolerance
    assert result.compared_with == ("untuned", "onnxruntime")
    assert result.skipped == {"torch": "the model is not a PyTorch exported program"}
    assert len(result.each) == 2
    assert all(each.within_tolerance and each.each == () for each in result.each)
    for name in ("tuned", "untuned", "onnxruntime"):
        rows = zip(*(each.latency_ms[name] for each in result.each), strict=True)
        assert result.latency_ms[name] == pytest.approx([sum(row) for row in rows])


def test_combinations_that_are_slower_than_in_onnxruntime_go_back(
    shapes: Shapes, monkeypatch: pytest.MonkeyPatch
) -> None:
    slower = iter([False, True, True, True])
    monkeypatch.setattr(result_choice, "is_slower", lambda *_: next(slower))
    monkeypatch.setattr(result_choice.ResultChoice, "look_again", lambda _choice, first, *_: first)
    options: dict[str, Any] = {"tuned": shapes.good, "onnx": shapes.onnx, "may_hand_over": True}
    one = validate_files(**options)
    assert (one.regions, one.plans, one.lost_ms) == (None, (0,), ())
    assert [each.regions for each in one.each] == [None, ()]
    assert one.within_tolerance
    assert returned_note(one) == "1 of 2 combinations of shapes is slower compiled than in onnxruntime, and runs there"
    both = validate_files(**options)
    assert (both.regions, both.plans) == ((), ())
    assert len(both.lost_ms) == min(len(each.lost_ms) for each in both.each) > 0


def test_the_combination_that_is_wrong_is_named(shapes: Shapes) -> None:
    result = validate_files(tuned=shapes.wrong, onnx=shapes.onnx, timed=False)
    assert result.within_tolerance is False
    assert [each.within_tolerance for each in result.each] == [True, False]
    assert result.disagreement.endswith("(onnxruntime, x=1x16x9x9)")
    assert result.max_abs_error == result.each[1].max_abs_error


def test_sets_of_inputs_count_for_the_combination_of_their_shapes(shapes: Shapes, tmp_path: Path) -> None:
    paths = []
    for name, side in (("a", 9), ("b", 6), ("c", 9)):
        path = tmp_path / f"{name}.npz"
        np.savez(path, x=np.full((1, 16, side, side), 2.0, np.float32))
        paths.append(str(path))
    names = ("a.npz", "b.npz", "c.npz")
    common: dict[str, Any] = {"tuned": shapes.wrong, "onnx": shapes.onnx, "timed": False}
    result = validate_files(**common, inputs=tuple(paths), input_names=names)
    assert [each.within_tolerance for each in result.each] == [True, False]
    assert result.disagreement.endswith("(onnxruntime, a.npz, x=1x16x9x9)")
    one = validate_files(**common, inputs=(paths[1],), input_names=names[1:2])
    assert [each.within_tolerance for each in one.each] == [True, False]  # on inputs that were drawn
    np.savez(tmp_path / "none.npz", x=np.zeros((1, 16, 7, 7), np.float32))
    with pytest.raises(InputError, match=r"none.npz: the shapes x=1x16x7x7 were not tuned"):
        validate_files(**common, inputs=(str(tmp_path / "none.npz"),))
