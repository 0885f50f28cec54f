"""Times the kernels of the regions of a result that runs partly in onnxruntime, each region alone, on drawn inputs."""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from kintune.core.call_times import KernelTimes
from kintune.errors import EngineError
from kintune.runtime.hybrid_package import HybridPackage, region_name
from kintune.runtime.package import read_manifest
from kintune.validate.baseline_process import BaselineProcess
from kintune.validate.baseline_protocol import BaselineContext, ProfileTurn
from kintune.validate.baselines import KINTUNE, BaselineModel

__all__ = ["ROUNDS", "RegionTimes", "middle_times", "time_regions"]

ROUNDS = 5
"""The rounds in which kernels are timed; results are medians over them."""

_SHORTEST_SECONDS = 0.2  # for each region, however many there are
_PREPARE_SECONDS = 300.0
_TURN_SECONDS = 120.0


class RegionTimes(NamedTuple):
    """The times of the kernels of each region, by its number; in `failed`, in a line each, why others have none."""

    kernels: dict[int, KernelTimes]
    failed: dict[int, str]


def time_regions(
    package: HybridPackage, numbers: Iterable[int], combination: int, cores: Sequence[int], runs: int, seconds: float
) -> RegionTimes:
    """Time the kernels of the regions with these numbers: in rounds of up to `runs` runs, for `seconds` in all.

    `combination` is the number of the combination of shapes.

    Raises:
        InputError: a region's file is damaged.
    """
    numbers = list(numbers)
    each_s = max(_SHORTEST_SECONDS, seconds / max(1, len(numbers)))
    found = RegionTimes({}, {})
    with tempfile.TemporaryDirectory(prefix="kintune-regions-") as folder:
        for number in numbers:
            path = Path(folder) / region_name(number)
            path.write_bytes(package.region(number))
            try:
                found.kernels[number] = _time_kernels(path, combination, cores, runs, each_s)
            except EngineError as error:
                found.failed[number] = str(error)
            path.unlink()
    return found


def _time_kernels(path: Path, combination: int, cores: Sequence[int], runs: int, seconds: float) -> KernelTimes:
    combinations = read_manifest(path).combinations
    tensors = combinations[min(combination, len(combinations) - 1)].inputs
    subject = BaselineModel(os.path.abspath(path))
    context = BaselineContext(KINTUNE, subject, tensors, None, 0, len(cores), tuple(cores))
    turn = ProfileTurn(len(cores), runs, seconds / ROUNDS)
    with BaselineProcess(KINTUNE, context) as process:
        process.prepare(_PREPARE_SECONDS)
        return middle_times([process.profile_calls(turn, _TURN_SECONDS) for _ in range(ROUNDS)])


def middle_times(rounds: Sequence[KernelTimes]) -> KernelTimes:
    """The medians of several rounds, with the timeline of the middle one; empty for no rounds."""
    places = sorted({place for each in rounds for place in each.us})
    calls = {place: statistics.median(each.us[place] for each in rounds if place in each.us) for place in places}
    return KernelTimes(calls, rounds[len(rounds) // 2].timeline if rounds else ())
