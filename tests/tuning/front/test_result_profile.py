"""The profile in the report of a result, of times that were measured nowhere."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from kintune.core.call_times import CallTimes, KernelTimes, NodeTime
from kintune.core.device import Peak
from kintune.core.profile import IN_ONNXRUNTIME, Profile
from kintune.core.stage_requests import ValidationContext, ValidationItem
from kintune.core.stage_results import Summary, ValidationResult
from kintune.core.verdict import Verdict
from kintune.runtime.hybrid_package import HybridPackage, write_hybrid
from kintune.runtime.manifest import read_manifest
from kintune.tuning.front.result_profile import result_profile
from kintune.validate.call_timing import time_calls
from kintune.validate.validation_run import ValidationRun
from tests.profiling.test_parts import around_distances
from tests.support.toy_hybrid import one_region, write_toy_hybrid
from tests.support.toy_model import adding, write_model

TWO_ADDS = KernelTimes({0: 4.0, 1: 5.0}, ((0, 1.0, 4.0), (1, 6.0, 5.0)))
NODES = (
    NodeTime("first add", "Region0", 12.0, 100.0),
    NodeTime("sum", "CumSum", 20.0, 112.0),
    NodeTime("second add", "Region1", 11.0, 132.0),
)
PARTS = CallTimes("A Processor", 2, nodes=NODES, regions={0: TWO_ADDS, 1: TWO_ADDS})
PEAK = Peak(333.0, 15.0, 2, 20.0)


def summary(
    calls: CallTimes | None, peak: Peak | None = PEAK, tuned_ms: tuple[float, ...] = (0.05, 0.06, 0.07)
) -> Summary:
    proof = ValidationResult({"tuned": tuned_ms}, None, None, Verdict.NOT_COMPARED, (), {}, calls=calls)
    return Summary("m", "d", "trials", 1, 0, (), (), 1.0, None, proof, peak=peak)


def profiled(path: Path, calls: CallTimes | None, **changes: object) -> Profile:
    found = result_profile(str(path), summary(calls, **changes))  # type: ignore[arg-type]
    assert found is not None
    return found


def test_kernels_of_regions_and_nodes_are_rows(tmp_path: Path) -> None:
    found = profiled(write_toy_hybrid(tmp_path), PARTS)
    assert [(call.where, call.region, call.kernel, call.us) for call in found.calls] == [
        ("kintune", 0, "add", 4.0),
        ("kintune", 0, "add", 5.0),
        (IN_ONNXRUNTIME, -1, "sum", 20.0),
        ("kintune", 1, "add", 4.0),
        ("kintune", 1, "add", 5.0),
    ]
    assert [(region.us, region.calls, region.kernels_us, region.boundary_us) for region in found.regions] == [
        (12.0, 2, 9.0, 3.0),
        (11.0, 2, 9.0, 2.0),
    ]
    assert (found.cpu, found.threads, found.run_ms, found.runs, found.peak) == ("A Processor", 2, 0.06, 3, PEAK)
    assert found.kernels_ms == pytest.approx(0.038)
    assert found.gap_ms == pytest.approx(0.022)
    assert found.executable == "hybrid.kt"
    assert found.is_hybrid


def test_a_region_that_could_not_be_timed_is_noted(tmp_path: Path) -> None:
    calls = msgspec.structs.replace(PARTS, regions={0: TWO_ADDS}, failed={1: "it fails"})
    found = profiled(write_toy_hybrid(tmp_path), calls)
    assert [call.region for call in found.calls] == [0, 0, -1]
    assert "region 1 does not run alone on drawn inputs: it fails" in found.notes


def test_nodes_alone_need_no_peak(tmp_path: Path) -> None:
    path = write_toy_hybrid(tmp_path, regions=0)
    calls = CallTimes("A Processor", 2, nodes=(NodeTime("sum", "CumSum", 20.0, 0.0),))
    found = profiled(path, calls, peak=None)
    assert ([call.kernel for call in found.calls], found.regions, found.notes) == (["sum"], (), ())
    slowed = profiled(path, calls, tuned_ms=(0.01,))
    assert slowed.gap_ms == pytest.approx(-0.01)
    assert "profiler makes its nodes slower" in slowed.notes[0]


def test_a_result_with_other_regions_has_none(tmp_path: Path) -> None:
    assert result_profile(str(write_toy_hybrid(tmp_path, regions=1)), summary(PARTS)) is None
    assert result_profile(str(write_model(tmp_path / "model.kt")), summary(PARTS)) is None
    assert result_profile(str(tmp_path / "gone.kt"), summary(PARTS)) is None


def test_a_network_of_kernels_is_profiled_also_as_the_only_region(tmp_path: Path) -> None:
    calls = CallTimes("A Processor", 2, TWO_ADDS.us, TWO_ADDS.timeline)
    plain = profiled(write_model(tmp_path / "model.kt"), calls, peak=None)
    assert [(call.us, call.region) for call in plain.calls] == [(4.0, -1), (5.0, -1)]
    assert "peak is not known, so no limits are named: kintune profile measures it" in plain.notes[0]
    package = HybridPackage.open(one_region(tmp_path, adding()))
    assert result_profile(str(tmp_path / "one.kt"), summary(calls)) is None
    assert package.manifest.hybrid is not None
    hybrid = msgspec.structs.replace(package.manifest.hybrid, other_shapes=True)
    path = tmp_path / "open.kt"
    write_hybrid(path, msgspec.structs.replace(package.manifest, hybrid=hybrid), package.graph, [package.region(0)])
    assert [call.us for call in profiled(path, calls).calls] == [4.0, 5.0]


def test_without_times_there_is_none(tmp_path: Path) -> None:
    path = str(write_toy_hybrid(tmp_path))
    assert result_profile(path, summary(None)) is None
    assert result_profile(path, summary(PARTS, tuned_ms=())) is None
    assert result_profile(path, msgspec.structs.replace(summary(PARTS), proof=None)) is None


@pytest.mark.tvm
def test_kernels_that_were_compiled_have_the_users_nodes(tmp_path: Path) -> None:
    import kintune

    model, path = kintune.load(str(around_distances(tmp_path / "network.onnx"))), tmp_path / "n.kt"
    model.compile(output=str(path), records=str(tmp_path / "r.sqlite"), progress=False)
    item = ValidationItem(str(path))
    timed = time_calls(ValidationRun(ValidationContext(threads=1), item, read_manifest(path), tmp_path, ""))
    found = profiled(path, timed)
    assert {call.kernel for call in found.left} == {"distance", "flatten"}
    first, behind = (call for call in found.calls if call.region >= 0)
    assert [node.name for node in first.nodes] == ["project", "relu"]
    assert [node.name for node in behind.nodes][-2:] == ["classify", "last"]
    assert {region.number for region in found.regions if region.kernels_us > 0} == {0, 1}
