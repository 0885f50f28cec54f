"""Reports of runs that never were, for whoever shows or reads reports."""

from __future__ import annotations

from typing import Any

import msgspec

from kintune.core.config import Options
from kintune.core.report import (
    CurvePoint,
    FamilyProgress,
    Latencies,
    ModelIdentity,
    ProgressReport,
    RunReport,
    StageSeconds,
    StopReason,
    SubgraphReport,
)
from kintune.core.stage_results import StageName

__all__ = ["example_progress", "example_report"]


def example_progress(**changes: Any) -> ProgressReport:
    """A job in the middle of its search, twice as fast as untuned already; `changes` replace fields."""
    progress = ProgressReport(
        stage=StageName.PROFILE,
        trials=384,
        trials_total=1000,
        elapsed_s=192.0,
        time_left_s=340.0,
        best_ms=15.0,
        untuned_ms=30.0,
        families=(FamilyProgress("conv2d", 11, 320, 2.4), FamilyProgress("dense", 1, 64)),
        subgraph="conv2d_7",
        failures={"build timed out": 2, "run failed": 1},
        reused_records=128,
    )
    return msgspec.structs.replace(progress, **changes)


def example_report(**changes: Any) -> RunReport:
    """A run that made a model twice as fast, and faster than onnxruntime; `changes` replace fields."""
    report = RunReport(
        run_id="20261121-1",
        model=ModelIdentity("resnet18", "0" * 32),
        target="llvm",
        options=Options(trials=1000),
        seeds={"search": 0},
        versions={"kintune": "0.1.0"},
        reason=StopReason.TRIALS,
        trials=1000,
        reused_records=128,
        seconds=754.0,
        stage_seconds=StageSeconds(select=100.0, build=400.0, profile=200.0, update=40.0, other=14.0),
        subgraphs=(
            SubgraphReport("conv2d_7", 4, 2.3e8, "conv2d", 900, 820.0, {"build timed out": 2}, 1700.0),
            SubgraphReport("dense", 1, 1e6, "dense", 100, 40.0, {"build timed out": 1, "run failed": 4}, 60.0),
        ),
        curve=(CurvePoint(0.0, 0, 30.0), CurvePoint(120.0, 256, 18.5), CurvePoint(700.0, 1000, 15.0)),
        latency_ms=Latencies.of({"untuned": [30.0], "tuned": [14.9, 15.0, 15.4], "onnxruntime": [16.0, 16.2, 16.9]}),
        max_abs_error=2e-5,
        max_rel_error=4e-4,
        within_tolerance=True,
        output="/models/resnet18.kt",
        log="/models/resnet18.log",
        skipped={"torch": "the model is not a PyTorch program"},
    )
    return msgspec.structs.replace(report, **changes)
