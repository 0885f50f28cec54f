"""The kernels of regions are timed, each region alone."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from kintune.core.call_times import KernelTimes
from kintune.runtime.hybrid_package import HybridPackage, write_hybrid
from kintune.validate import region_times
from kintune.validate.baseline_protocol import BaselineContext, ProfileTurn
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


class Timed:
    """A process that notes how it is asked."""

    asked: ClassVar[list[tuple[BaselineContext, ProfileTurn]]] = []

    def __init__(self, name: str, context: BaselineContext) -> None:
        self.context = context

    def __enter__(self) -> Timed:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to end."""

    def prepare(self, seconds: float) -> None:
        """Nothing to do."""

    def profile_calls(self, turn: ProfileTurn, seconds: float) -> KernelTimes:
        self.asked.append((self.context, turn))
        return KernelTimes({0: 1.0})


@pytest.mark.parametrize(
    ("numbers", "seconds", "each_s"), [([0], 1.0, 1.0), ([0, 1], 1.0, 0.5), ([0, 1], 0.1, 0.2), ([], 1.0, 0.0)]
)
@pytest.mark.parametrize("combination", [0, 1, 5])
def test_regions_share_the_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, numbers: list[int], seconds: float, each_s: float, combination: int
) -> None:
    """A region that is the same with all shapes has one combination of them."""
    monkeypatch.setattr(region_times, "BaselineProcess", Timed)
    monkeypatch.setattr(Timed, "asked", [])
    package = HybridPackage.open(write_toy_hybrid(tmp_path, counts=(1000, 10)))
    found = time_regions(package, numbers, combination, (0, 3), 7, seconds)
    assert (sorted(found.kernels), found.failed) == (numbers, {})
    assert len(Timed.asked) == region_times.ROUNDS * len(numbers)
    for context, turn in Timed.asked:
        assert (turn.threads, turn.runs, turn.seconds) == (2, 7, each_s / region_times.ROUNDS)
        assert (context.threads, context.cores, context.inputs, context.seed) == (2, (0, 3), None, 0)
        assert context.tensors[0].shape[0] == (1000 if combination == 0 else 10)


def test_rounds_give_their_medians() -> None:
    rounds = [KernelTimes({0: us}, ((0, 0.0, us),)) for us in (1.0, 5.0, 2.0)]
    assert middle_times(rounds) == KernelTimes({0: 2.0}, ((0, 0.0, 5.0),))
    assert middle_times([]) == KernelTimes({})
