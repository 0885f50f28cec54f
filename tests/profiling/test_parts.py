"""Profiles of results that run partly in onnxruntime, with regions whose kernels are written by hand."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

from kintune.core.call_times import NodeTime
from kintune.core.profile import IN_ONNXRUNTIME
from kintune.errors import InputError
from kintune.profiling.collect import ProfileRequest, profile_executable
from kintune.profiling.parts import failure_notes, profile_parts, regions_among
from kintune.runtime.hybrid_executable import HybridExecutable
from kintune.runtime.hybrid_package import HybridPackage, write_hybrid
from kintune.validate.region_times import time_regions
from tests.profiling.test_collect import a_peak, no_peak
from tests.support.toy_hybrid import X, host_graph, hybrid_manifest, one_region, region_file, write_toy_hybrid
from tests.support.toy_model import adding


def test_nodes_and_kernels_are_rows(tmp_path: Path) -> None:
    found = profile_executable(ProfileRequest(str(write_toy_hybrid(tmp_path)), runs=5, seconds=0.5), a_peak)
    assert [(call.where, call.region, call.kernel) for call in found.calls] == [
        ("kintune", 0, "add"),
        ("kintune", 0, "add"),
        (IN_ONNXRUNTIME, -1, "sum"),
        ("kintune", 1, "add"),
        ("kintune", 1, "add"),
    ]
    assert [call.place for call in found.calls] == [0, 1, 2, 3, 4]
    assert found.calls[2].title == "sum (CumSum)"
    assert sum(call.share for call in found.calls) == pytest.approx(1.0)
    assert found.gap_ms == pytest.approx(found.run_ms - sum(call.us for call in found.calls) / 1e3)
    assert [place for place, _, _ in found.timeline] == [0, 1, 2, 3, 4]
    assert found.peak is not None


def test_each_region_stands_against_its_kernels(tmp_path: Path) -> None:
    found = profile_executable(ProfileRequest(str(write_toy_hybrid(tmp_path)), runs=5, seconds=0.5), no_peak)
    first, second = found.regions
    assert (first.number, first.name, first.nodes, first.times, first.calls) == (0, "first add", ("a", "b"), 1, 2)
    assert first.kernels_us == pytest.approx(sum(call.us for call in found.calls if call.region == 0))
    assert first.boundary_us == pytest.approx(first.us - first.kernels_us)
    assert second.start_us > first.start_us
    assert 0 < first.share + second.share < 1
    assert "each region's kernels were timed in the region alone, on drawn inputs" in found.notes
    assert len([note for note in found.notes if "does not say what its kernels compute" in note]) == 1


def test_a_result_without_regions_has_nodes_alone(tmp_path: Path) -> None:
    path = write_toy_hybrid(tmp_path, regions=0)
    found = profile_executable(ProfileRequest(str(path), runs=3, seconds=0.5), no_peak)
    assert {call.where for call in found.calls} == {IN_ONNXRUNTIME}
    assert "sum" in [call.kernel for call in found.calls]
    assert (found.regions, found.peak) == ((), None)
    assert not any("peak" in note for note in found.notes)


def test_a_region_that_is_the_whole_network_is_profiled_as_its_file(tmp_path: Path) -> None:
    package = HybridPackage.open(one_region(tmp_path, adding()))
    assert package.manifest.hybrid is not None
    hybrid = msgspec.structs.replace(package.manifest.hybrid, other_shapes=True)
    path = tmp_path / "open.kt"
    write_hybrid(path, msgspec.structs.replace(package.manifest, hybrid=hybrid), package.graph, [package.region(0)])
    found = profile_executable(ProfileRequest(str(path), runs=3, seconds=0.5), no_peak)
    assert [(call.where, call.region, call.kernel) for call in found.calls] == [("kintune", -1, "add")] * 2
    assert (found.executable, found.regions, found.is_hybrid) == (str(path), (), False)
    assert any("inputs of other shapes run in onnxruntime" in note for note in found.notes)


def test_inputs_choose_the_shapes_of_the_regions(tmp_path: Path) -> None:
    path = write_toy_hybrid(tmp_path, counts=(1000, 10))
    np.savez(tmp_path / "x.npz", x=np.ones(10, np.float32))
    found = profile_executable(ProfileRequest(str(path), str(tmp_path / "x.npz"), runs=3, seconds=0.5), no_peak)
    assert found.shapes == {"x": (10,)}
    assert [region.calls for region in found.regions] == [2, 2]
    np.savez(tmp_path / "x.npz", x=np.ones(3, np.float32))
    with pytest.raises(InputError, match=r"x\.npz"):
        profile_executable(ProfileRequest(str(path), str(tmp_path / "x.npz")), no_peak)


def test_a_region_that_does_not_run_alone_is_noted(tmp_path: Path) -> None:
    described = hybrid_manifest()
    file = region_file(tmp_path, "region.kt", [adding()])
    other = region_file(tmp_path, "other.kt", [adding()], machine="other")
    path = tmp_path / "hybrid.kt"
    write_hybrid(path, described, host_graph(described), [file, file])
    package = HybridPackage.open(path)
    broken = package._replace(regions=(memoryview(file), memoryview(other)))
    nodes = (NodeTime("second add", "Region1", 4.0, 1.0), NodeTime("sum", "CumSum", 2.0, 5.0, 2))
    alone = time_regions(broken, regions_among(described.hybrid, nodes), 0, (0,), 1, 0.1)
    parts = profile_parts(broken, 0, nodes, alone.kernels, 1, None)
    assert [call.kernel for call in parts.calls] == ["sum"]
    assert parts.timeline == ((0, 4.0, 1.0),)
    first, second = parts.regions
    assert (first.times, second.times, second.calls, second.boundary_us) == (0, 1, 0, 0.0)
    assert parts.notes == ()
    (note,) = failure_notes(alone.failed)
    assert note.startswith("region 1 does not run alone on drawn inputs: ")


def test_another_machine_is_refused_before_anything_runs(tmp_path: Path) -> None:
    path = write_toy_hybrid(tmp_path, machine="other")
    with pytest.raises(InputError, match="built for other"):
        profile_executable(ProfileRequest(str(path)), no_peak)


def test_onnxruntime_that_is_missing_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(InputError, match="onnxruntime"):
        profile_executable(ProfileRequest(str(write_toy_hybrid(tmp_path))), no_peak)


def test_a_result_in_memory_is_profiled(tmp_path: Path) -> None:
    import kintune

    package = HybridPackage.open(write_toy_hybrid(tmp_path))
    made = HybridExecutable.create(package.manifest, package.graph, [package.region(0), package.region(1)])
    found = kintune.profile(made, {"x": X}, threads=1, runs=2)
    assert [region.calls for region in found.regions] == [2, 2]
    assert found.threads == 1


def around_distances(path: Path) -> Path:
    """A network that is compiled before and behind an operator of onnxruntime's own, which is not."""

    def weight(name: str, *shape: int) -> TensorProto:
        return numpy_helper.from_array(np.full(shape, 0.01, np.float32), name)

    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["a"], "project"),
        helper.make_node("Relu", ["a"], ["h"], "relu"),
        helper.make_node("CDist", ["h", "points"], ["y"], "distance", domain="com.microsoft", metric="euclidean"),
        helper.make_node("Reshape", ["y", "shape"], ["rows"], "flatten"),
        helper.make_node("MatMul", ["rows", "w2"], ["z"], "classify"),
        helper.make_node("Relu", ["z"], ["out"], "last"),
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", [64, 512]), ("out", [64, 4096]))
    ]
    weights = [weight("w1", 512, 512), weight("points", 32, 512), weight("w2", 32, 4096)]
    domains = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    shape = numpy_helper.from_array(np.array([64, 32]), "shape")
    graph = helper.make_graph(nodes, "network", ends[:1], ends[1:], [*weights, shape])
    save(helper.make_model(graph, opset_imports=domains, ir_version=9), str(path))
    return path


@pytest.mark.tvm
def test_kernels_of_regions_have_the_users_nodes(tmp_path: Path) -> None:
    import kintune

    model = kintune.load(str(around_distances(tmp_path / "network.onnx")))
    model.compile(output=str(tmp_path / "n.kt"), records=str(tmp_path / "r.sqlite"), progress=False)
    found = kintune.profile(tmp_path / "n.kt", model=model, runs=5)
    assert [call.kernel for call in found.left] == ["distance", "flatten"]
    first, behind = (call for call in found.calls if call.region >= 0)
    assert [node.name for node in first.nodes] == ["project", "relu"]
    assert [node.name for node in behind.nodes][-2:] == ["classify", "last"]
    assert first.gflops > 0
    assert all(call.onnxruntime_us is not None for call in found.calls)
