"""What a measured candidate costs, step by step, and what it cannot cost less than.

    python benchmarks/trial_costs.py zoo:mobilenet_v2 zoo:bert_base --minutes 4

Each network is tuned as a user would, cold; the seconds of each stage over the programs measured are what a trial
costs.  Then a sample of the candidates that this run has measured is lowered, compiled, linked and loaded again, one by
one on one core, with a clock between the steps.  The limit is one lowering (replay and passes), one code generation
and one run of each: the first two on all cores at once, the last alone.  Results go to
`benchmarks/results/trial_costs.json`.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from one_run import tune

from kintune.doctor.machine import inspect_machine
from kintune.measure.cores import choose_cores
from kintune.records import Store
from kintune.space.candidate import UNTUNED

RESULTS = Path(__file__).parent / "results" / "trial_costs.json"
SAMPLE = 120


def steps(records: Path, sample: int, seed: int) -> tuple[dict[str, float], float, int]:
    """Mean milliseconds of each step for a sample of what was measured, mean microseconds of a run, and how many."""
    import tvm
    import tvm_ffi
    from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

    from kintune.graph.elementary import use_vector_functions
    from kintune.measure.linker import link
    from kintune.space.features import FeatureExtractor
    from kintune.space.lower import Replayer, load_workload

    use_vector_functions()
    with Store.open(records) as store:
        rows = [row for row in store.measurements.find() if row.outcome.ok and row.candidate.sketch != UNTUNED]
        target = tvm.target.Target(json.loads(store.devices.list()[0].target))
        chosen = np.random.default_rng(seed).permutation(len(rows))[:sample]
        picked = sorted((rows[int(i)] for i in chosen), key=lambda row: row.candidate)
        modules = {w: load_workload(store.workloads.module(w)) for w in {row.candidate.workload for row in picked}}
        sketches = {s.digest: s for s in store.workloads.sketches(modules)}
    spent: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def step(name: str) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        spent[name] += time.perf_counter() - begun

    replayers = {workload: Replayer(module, target) for workload, module in modules.items()}
    extractors = {workload: FeatureExtractor(replayer.context) for workload, replayer in replayers.items()}
    generate: Callable[..., Any] = tvm.get_global_func("target.build.llvm")
    for row in picked:
        candidate = row.candidate
        with step("replay"):
            schedule = replayers[candidate.workload](sketches[candidate.sketch], candidate).schedule
        with step("(full features)"):
            extractors[candidate.workload]([schedule])
        with tvm.transform.PassContext(opt_level=3, config={"tirx.disable_assert": True}):
            with step("passes"):
                module = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(schedule.mod)
                module = tvm.tirx.transform.BindTarget(target.with_host(target))(module)
                pipeline, finish, _ = tvm.tirx.get_default_tir_pipeline(target)
                module = tvm.tirx.transform.SkipAssert()(finish()(pipeline(module)))
            with step("code generation"):
                library = generate(module, target)
            with tempfile.TemporaryDirectory() as folder:
                with step("code generation"):
                    library.write_to_file(f"{folder}/program.o", "o")
                with step("linking"):
                    link(f"{folder}/program.so", [f"{folder}/program.o"])
                with step("loading"):
                    tvm_ffi.load_module(f"{folder}/program.so", keep_module_alive=False)
    means = {name: 1e3 * seconds / len(picked) for name, seconds in spent.items()}
    return means, float(np.mean([row.outcome.median_us for row in picked])), len(picked)


def report_of(model: str, minutes: float, seed: int) -> dict[str, Any]:
    """Tune, take apart, compare."""
    threads = len(choose_cores(0))
    with tempfile.TemporaryDirectory() as directory:
        report = tune(model, minutes, Path(directory))
        own = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(own)})  # one core, as one of several build workers has
        try:
            means, run_us, count = steps(Path(directory) / "records.sqlite", SAMPLE, seed)
        finally:
            os.sched_setaffinity(0, own)
    trials = report["trials"]
    stages = {name: 1e3 * s / trials for name, s in report["stage_seconds"].items() if name != "other"}
    limit = (means["replay"] + means["passes"] + means["code generation"]) / threads + run_us / 1e3
    total = sum(stages.values())
    print(f"\n{model}: {trials} trials, {total:.1f} ms each: " + ", ".join(f"{n} {v:.1f}" for n, v in stages.items()))
    print(f"  one core, ms a candidate ({count} of them): " + ", ".join(f"{n} {v:.1f}" for n, v in means.items()))
    print(
        f"  limit {limit:.1f} ms on {threads} threads (a run takes {run_us / 1e3:.2f}); {total / limit:.2f} times that"
    )
    return {
        "model": model,
        "minutes": minutes,
        "threads": threads,
        "trials": trials,
        "stage_ms": stages,
        "other_seconds": report["stage_seconds"]["other"],
        "step_ms": means,
        "run_us": run_us,
        "sample": count,
        "trial_ms": total,
        "limit_ms": limit,
        "ratio": total / limit,
    }


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
