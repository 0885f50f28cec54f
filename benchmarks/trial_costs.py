"""Splits the cost of a measured candidate into steps, and computes a lower bound of it.

    python benchmarks/trial_costs.py zoo:mobilenet_v2 zoo:bert_base --minutes 4

Each network is tuned cold; the seconds of each stage over the number of measured programs are the cost of a trial.
Then a sample of the measured candidates is lowered, compiled, linked and loaded again, with a clock between the steps:
on one core while the others are idle, then on all cores at once, as workers do.  They are also timed again under a
profiler.  Steps of building are scaled by the ratio of all candidates' build times to those of the sample.  The bound
is one lowering (replay and passes), one code generation and one run of each: the first two on all cores, the last
alone.  It is computed twice: as if cores did not slow each other down, and as they do.  Results go to
`notebook/results/trial_costs.json`.
"""

from __future__ import annotations

import argparse
import datetime
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from one_run import tune
from trial_steps import build_steps, in_process, pinned, profile_steps, sample_of

from kintune.hardware.cores import choose_cores
from kintune.hardware.cpu import inspect_machine

RESULTS = Path(__file__).parents[1] / "notebook/results" / "trial_costs.json"
SAMPLE = 200
_NEEDED = ("replay", "passes", "code generation")


def report_of(model: str, minutes: float, seed: int) -> dict[str, Any]:
    """Tune, time the steps, compare."""
    cores = choose_cores(0)
    with tempfile.TemporaryDirectory() as directory:
        report = tune(model, minutes, Path(directory))
        sample = sample_of(Path(directory) / "records.sqlite", SAMPLE, seed)
    alone, together = (_mean(pinned(some, build_steps, sample), sample.scale) for some in (cores[:1], cores))
    timing = in_process(profile_steps, sample)
    run_ms = 1e-3 * sample.run_us
    trials = report["trials"]
    building = {
        "these": 1e3 * sample.built_s / len(cores) / trials,
        "untuned, failed, finalists": 1e3 * sample.other_built_s / len(cores) / trials,
    }
    stages = {name: 1e3 * s / trials for name, s in report["stage_seconds"].items() if name != "other"}
    limits = [sum(made[step] for step in _NEEDED) / len(cores) + run_ms for made in (alone, together)]
    total = sum(stages.values())
    building["cores that wait"] = stages["build"] - sum(building.values())
    print(f"\n{model}: {trials} trials, {total:.1f} ms each: {_listed(stages)}")
    print(f"  of building: {_listed(building)}")
    print(f"  building one of {len(sample.rows)}, ms on one core: {_listed(alone)}")
    print(f"  the same while all {len(cores)} cores build: {_listed(together)}")
    print(f"  timing one of them: {_listed(timing)}; a run takes {run_ms:.2f}")
    print("  limit " + ", ".join(f"{limit:.1f} ms ({total / limit:.2f} times that)" for limit in limits))
    return {
        "model": model,
        "minutes": minutes,
        "threads": len(cores),
        "trials": trials,
        "stage_ms": stages,
        "other_seconds": report["stage_seconds"]["other"],
        "step_ms": alone,
        "step_ms_all_cores": together,
        "timing_ms": timing,
        "run_us": 1e3 * run_ms,
        "sample": len(sample.rows),
        "build_ms": building,
        "scale": sample.scale,
        "trial_ms": total,
        "limit_ms": limits[0],
        "limit_ms_all_cores": limits[1],
        "ratio": total / limits[0],
        "ratio_all_cores": total / limits[1],
    }


def _mean(steps: Sequence[dict[str, float]], scale: float) -> dict[str, float]:
    return {step: scale * float(np.mean([one[step] for one in steps])) for step in steps[0]}


def _listed(steps: Mapping[str, float]) -> str:
    return ", ".join(f"{step} {ms:.1f}" for step, ms in steps.items())


def main() -> None:
    """All models, one after the other."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--minutes", type=float, default=4.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rows = [report_of(model, options.minutes, options.seed) for model in options.models]
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    RESULTS.write_text(json.dumps({"date": today, "cpu": inspect_machine().cpu, "networks": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
