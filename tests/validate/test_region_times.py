"""The kernels of regions are timed, each region alone."""

from __future__ import annotations

from pathlib import Path

from kintune.core.call_times import KernelTimes
from kintune.runtime.hybrid_package import HybridPackage, write_hybrid
from kintune.validate.region_times import middle_times, time_regions
from tests.support.toy_hybrid import host_graph, hybrid_manifest, region_file, write_toy_hybrid
from tests.support.toy_model import adding


def test_each_region_that_is_asked_for_is_timed(tmp_path: Path) -> None:
    package = HybridPackage.open(write_toy_hybrid(tmp_path, counts=(1000, 10)))
    found = time_regions(package, [1], 1, (0,), 2, 0.1)
    assert set(found.kernels) == {1}
    assert set(found.kernels[1].us) == {place for place, _, _ in found.kernels[1].timeline}
    assert len(found.kernels[1].us) == 2
    assert found.failed == {}


def test_why_a_region_does_not_run_is_said(tmp_path: Path) -> None:
    described = hybrid_manifest()
    file = region_file(tmp_path, "region.kt", [adding()])
    other = region_file(tmp_path, "other.kt", [adding()], machine="other")
    path = tmp_path / "hybrid.kt"
    write_hybrid(path, described, host_graph(described), [file, file])
    broken = HybridPackage.open(path)._replace(regions=(memoryview(file), memoryview(other)))
    found = time_regions(broken, [0, 1], 0, (0,), 1, 0.1)
    assert set(found.kernels) == {0}
    assert set(found.failed) == {1}
    assert "built for other" in found.failed[1]


def test_rounds_give_their_medians() -> None:
    rounds = [KernelTimes({0: us}, ((0, 0.0, us),)) for us in (1.0, 5.0, 2.0)]
    assert middle_times(rounds) == KernelTimes({0: 2.0}, ((0, 0.0, 5.0),))
    assert middle_times([]) == KernelTimes({})
