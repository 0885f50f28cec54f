"""The parts of a result, timed for its profile."""

from __future__ import annotations

from pathlib import Path

import pytest

from kintune.core.stage_requests import ValidationContext, ValidationItem
from kintune.runtime.manifest import read_manifest
from kintune.validate import call_timing
from kintune.validate.call_timing import time_calls
from kintune.validate.region_times import RegionTimes
from kintune.validate.validation_run import ValidationRun
from tests.support.toy_hybrid import write_toy_hybrid

CONDITIONS = ValidationContext(threads=1)


def run_of(path: Path, number: int = 0, board: str = "") -> ValidationRun:
    item = ValidationItem(str(path))
    return ValidationRun(CONDITIONS, item, read_manifest(path), path.parent, board, number)


def test_of_a_hybrid_nodes_and_the_kernels_of_regions_are_timed(tmp_path: Path) -> None:
    calls = time_calls(run_of(write_toy_hybrid(tmp_path)))
    assert calls is not None
    assert [(node.name, node.op) for node in calls.nodes] == [
        ("first add", "Region0"),
        ("sum", "CumSum"),
        ("second add", "Region1"),
    ]
    assert {number: len(times.us) for number, times in calls.regions.items()} == {0: 2, 1: 2}
    assert (calls.us, calls.failed, calls.threads) == ({}, {}, 1)


def test_it_has_as_many_threads_as_cores_and_says_what_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(write_toy_hybrid(tmp_path))
    run.conditions = ValidationContext(threads=2)
    asked: list[object] = []

    def timed(package: object, numbers: list[int], *rest: object) -> RegionTimes:
        asked.append((numbers, *rest))
        return RegionTimes({}, {1: "it stopped"})

    monkeypatch.setattr(call_timing, "time_regions", timed)
    for cores in ((0,), (0, 0)):
        run.cores = cores
        calls = time_calls(run)
        assert calls is not None
        assert (calls.threads, calls.failed) == (len(cores), {1: "it stopped"})
        assert asked.pop() == ([0, 1], 0, cores, 50, 1.0)


def test_elsewhere_and_for_other_shapes_nothing_is_timed(tmp_path: Path) -> None:
    path = write_toy_hybrid(tmp_path, counts=(1000, 10))
    assert time_calls(run_of(path, number=1)) is None
    assert time_calls(run_of(path, board="127.0.0.1:9")) is None


def test_what_does_not_run_is_not_profiled(tmp_path: Path) -> None:
    assert time_calls(run_of(write_toy_hybrid(tmp_path, machine="other"))) is None
