"""The parts of a result, timed inside it for its profile."""

from __future__ import annotations

from kintune.core.call_times import CallTimes
from kintune.errors import EngineError
from kintune.hardware.cpu import inspect_machine
from kintune.runtime.hybrid_package import HybridPackage
from kintune.runtime.package import read_manifest
from kintune.validate.baseline_protocol import ProfileNodesTurn, ProfileTurn
from kintune.validate.region_times import time_regions
from kintune.validate.validation_run import TUNED, ValidationRun

__all__ = ["time_calls"]

_RUNS, _SECONDS = 50, 1.0


def time_calls(run: ValidationRun) -> CallTimes | None:
    """Times the kernel calls of the tuned network inside it, and the nodes that it leaves to onnxruntime.

    None on another machine or a GPU, where it does not run, and for other combinations of shapes than the first.
    """
    if run.number or not run.runs_plans_here:
        return None
    cpu, threads = inspect_machine().cpu, min(run.conditions.threads, len(run.cores))
    seconds = run.conditions.prepare_seconds
    hybrid = read_manifest(run.item.tuned).hybrid
    with run.process(TUNED) as process:
        try:
            process.prepare(seconds)
            if hybrid is not None:
                nodes = process.profile_nodes(ProfileNodesTurn(_RUNS, _SECONDS), seconds).nodes
            else:
                found = process.profile_calls(ProfileTurn(threads, _RUNS, _SECONDS), seconds)
                return CallTimes(cpu, threads, found.us, found.timeline)
        except EngineError:  # the result is no worse for that
            return None
    ran = [number for number, region in enumerate(hybrid.regions) if region.name in {node.name for node in nodes}]
    package = HybridPackage.open(run.item.tuned)
    alone = time_regions(package, ran, 0, run.cores[:threads], _RUNS, _SECONDS)
    return CallTimes(cpu, threads, nodes=nodes, regions=alone.kernels, failed=alone.failed)
