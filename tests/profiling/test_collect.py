"""Profiles of executables whose kernels are written by hand."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from onnx import TensorProto, helper, save

from kintune.core.device import Peak
from kintune.core.execution_plan import Copy, KernelCall
from kintune.core.kernel_call import CallRecord, SourceNode
from kintune.core.profile import Limit
from kintune.errors import InputError, ModelError
from kintune.models.ref import parse_ref
from kintune.profiling.collect import ProfileRequest, profile_executable
from kintune.runtime.package import EncodedPlan, PackageVariant, write_package
from kintune.testing.small_onnx import write_small_onnx
from tests.support.toy_model import ADDING, encoded, kernels, manifest, packed, write_model

PEAK = Peak(100.0, 8.0, 1, 10.0)


def no_peak(_target: str, _threads: int) -> None:
    return None


def a_peak(_target: str, threads: int) -> Peak:
    return msgspec.structs.replace(PEAK, threads=threads)


def described(path: Path) -> Path:
    """The toy model with what its calls compute; the second one is a copy of the output, and runs on one thread."""
    plan = msgspec.structs.replace(
        ADDING, operations=(KernelCall("add", (0, 1, 2)), KernelCall("add", (2, 1, 3), 1), Copy(3, 2))
    )
    node = SourceNode("block/sum", "Add")
    calls = tuple(
        CallRecord(place=at, kernel="add", nodes=(node,), operators=("add",), flops=1000.0, nbytes=12000.0)
        for at in range(2)
    )
    weights = packed([np.arange(1000, dtype=np.float32)])
    about = msgspec.structs.replace(manifest(plan), calls=(calls,))
    write_package(path, [PackageVariant(about, (EncodedPlan(encoded(plan, weights), kernels()),))], weights)
    return path


def test_calls_have_their_nodes_times_and_limits(tmp_path: Path) -> None:
    request = ProfileRequest(str(described(tmp_path / "m.kt")), runs=5, seconds=0.5)
    found = profile_executable(request, a_peak)
    first, second = found.calls
    assert (first.kernel, first.place, second.place, second.threads) == ("add", 0, 1, 1)
    assert first.title == "block/sum (Add): add"
    assert first.share + second.share == pytest.approx(1.0)
    assert first.limit in (Limit.MEMORY, Limit.LAUNCH)
    assert first.gflops == pytest.approx(1.0 / first.us)
    assert first.where == "kintune"
    assert found.kernels_ms == pytest.approx((first.us + second.us) / 1e3)
    assert found.gap_ms == pytest.approx(found.run_ms - found.kernels_ms)
    assert (found.copies, found.copied_bytes) == (1, 4000)
    assert [place for place, _, _ in found.timeline] == [0, 1]
    assert found.timeline[1][1] >= found.timeline[0][1] + found.timeline[0][2]
    assert found.notes == ()


def test_a_file_of_an_earlier_version_has_the_kernels_names(tmp_path: Path) -> None:
    request = ProfileRequest(str(write_model(tmp_path / "m.kt")), runs=2, seconds=0.5)
    found = profile_executable(request, no_peak)
    assert [call.title for call in found.calls] == ["add", "add"]
    assert {call.limit for call in found.calls} == {Limit.UNKNOWN}
    assert len(found.notes) == 2
    assert found.peak is None


def test_inputs_of_the_user_are_run(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.kt")
    np.savez(tmp_path / "x.npz", x=np.ones(1000, np.float32))
    assert profile_executable(ProfileRequest(str(path), str(tmp_path / "x.npz"), runs=1), no_peak).calls
    np.savez(tmp_path / "x.npz", x=np.ones(3, np.float32))
    with pytest.raises(InputError, match=r"x\.npz"):
        profile_executable(ProfileRequest(str(path), str(tmp_path / "x.npz")), no_peak)


def test_another_model_is_refused_before_anything_runs(tmp_path: Path) -> None:
    ref = parse_ref(str(write_small_onnx(tmp_path / "small.onnx", channels=8)))
    path = write_model(tmp_path / "m.kt")
    with pytest.raises(InputError, match="no such file"):
        profile_executable(ProfileRequest(str(tmp_path / "none.kt"), model=ref), no_peak)
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "ab"]
    graph = helper.make_graph([helper.make_node("Relu", ["a"], ["b"])], "g", ports[:1], ports[1:])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(tmp_path / "a.onnx"))
    with pytest.raises(ModelError, match="has the inputs a, the executable x"):
        profile_executable(ProfileRequest(str(path), model=parse_ref(str(tmp_path / "a.onnx"))), no_peak)


@pytest.mark.tvm
def test_onnxruntime_stands_beside_it(tmp_path: Path) -> None:
    import kintune

    model = kintune.load(str(write_small_onnx(tmp_path / "small.onnx", channels=8)))
    model.compile(output=str(tmp_path / "small.kt"), records=str(tmp_path / "r.sqlite"), progress=False)
    found = kintune.profile(tmp_path / "small.kt", model=model, runs=5)
    assert found.peak is not None
    assert found.peak.gflops > 1
    assert found.onnxruntime is not None
    assert found.onnxruntime.matched_us > 0.5 * found.onnxruntime.nodes_us
    computed = {node.op for call in found.calls for node in call.nodes}
    assert {"Conv", "Relu", "GlobalAveragePool", "Gemm"} <= computed
    grouped = {place for group in found.onnxruntime.groups for place in group.calls}
    assert {call.place for call in found.calls if "conv2d" in call.operators} <= grouped
