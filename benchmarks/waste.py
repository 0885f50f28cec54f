"""Measures what a search spends on candidates that cannot win, from the records of runs.

    python benchmarks/waste.py bert.sqlite

For each network tuned into these records: the share of building and timing of the most expensive candidates; what the
best programs would lose without those that take more than three times the usual seconds to build; and how many
candidates are equivalent to one measured before.  A sample of these is lowered to check whether the programs are
identical.  Results go to `notebook/results/waste.json`.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from kintune.core.candidate import UNTUNED, Candidate
from kintune.core.messages import ItemStatus
from kintune.core.stage_requests import Built
from kintune.core.stage_results import StageName
from kintune.hardware.cpu import data_caches, inspect_machine
from kintune.records import Measurement, Store

RESULTS = Path(__file__).parents[1] / "notebook/results" / "waste.json"
DEAR = 3.0


class Trial(NamedTuple):
    """A candidate of a run: the seconds of building and timing, and its time."""

    candidate: Candidate
    build_s: float
    profile_s: float
    time_us: float


def trials(store: Store, run: str, measured: dict[str, Measurement]) -> list[Trial]:
    """The candidates that the run built and timed, in order."""
    built: dict[str, float] = {}
    found: list[Trial] = []
    for event in store.events.history(run):
        if event.status is not ItemStatus.OK:
            continue
        if event.kind == StageName.BUILD:
            built[msgspec.msgpack.decode(event.payload, type=Built).candidate] = event.seconds
        elif event.kind == StageName.PROFILE:
            digest = msgspec.msgpack.decode(event.payload, type=dict[str, Any])["candidate"]
            if digest in measured and digest in built:
                known = measured[digest]
                found.append(Trial(known.candidate, built[digest], event.seconds, known.outcome.median_us))
    return found


def share_of_dearest(seconds: Sequence[float], share: float) -> float:
    """The share of all seconds that the most expensive candidates take."""
    ordered = sorted(seconds, reverse=True)
    return sum(ordered[: max(1, round(share * len(ordered)))]) / sum(ordered)


def without_the_dear(found: Sequence[Trial]) -> tuple[float, float, float]:
    """The share of candidates and of build time that is expensive, and the loss in latency without it."""
    tuned = [trial for trial in found if trial.candidate.sketch != UNTUNED]
    limit = DEAR * statistics.median(trial.build_s for trial in tuned)
    best: defaultdict[str, list[float]] = defaultdict(lambda: [np.inf, np.inf])
    for trial in tuned:
        pair = best[trial.candidate.workload]
        pair[0] = min(pair[0], trial.time_us)
        if trial.build_s <= limit:
            pair[1] = min(pair[1], trial.time_us)
    lost = max((cheap / all_ for all_, cheap in best.values()), default=1.0)
    dear = [trial for trial in tuned if trial.build_s > limit]
    return len(dear) / len(tuned), sum(t.build_s for t in dear) / sum(t.build_s for t in tuned), lost


def twins(store: Store, found: Iterable[Trial], sample: int, seed: int) -> dict[str, Any]:
    """The number of candidates equivalent to an earlier one, and the identical pairs in a sample once lowered."""
    import tvm
    from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

    from kintune.compiler.graph.own_rules import own_rules
    from kintune.compiler.space.generator import load_intrinsics
    from kintune.compiler.space.replay import Replayer, load_workload
    from kintune.compiler.space.tvm_space import TvmSpace
    from kintune.runtime.target import instruction_set
    from kintune.search.processor import Processor

    load_intrinsics()
    device = store.devices.list()[0]
    target = tvm.target.Target(json.loads(device.target))
    by_workload: defaultdict[str, list[Trial]] = defaultdict(list)
    for trial in found:
        if trial.candidate.sketch != UNTUNED:
            by_workload[trial.candidate.workload].append(trial)
    modules = {workload: load_workload(store.workloads.module(workload)) for workload in by_workload}
    sketches = store.workloads.sketches(modules)
    by_digest = {sketch.digest: sketch for sketch in sketches}
    machine = Processor.of(instruction_set(device.target), device.threads, data_caches(inspect_machine()))
    space = TvmSpace(modules, sketches, target, machine, 1)
    counts: Counter[str] = Counter()
    pairs: list[tuple[Trial, Trial]] = []
    for workload, of_one in by_workload.items():
        for field in space.fields(workload):
            own = [trial for trial in of_one if trial.candidate in field.encoding]
            first: dict[bytes, Trial] = {}
            for trial, key in zip(
                own, field.keys(field.encoding.encode([t.candidate for t in own])) if own else (), strict=True
            ):
                counts["described"] += 1
                if key in first:
                    counts["twins"] += 1
                    pairs.append((first[key], trial))
                else:
                    first[key] = trial
    chosen = [pairs[int(i)] for i in np.random.default_rng(seed).permutation(len(pairs))[:sample]]

    def text(trial: Trial) -> str:
        replay = Replayer(modules[trial.candidate.workload], target)
        scheduled = replay(by_digest[trial.candidate.sketch], trial.candidate).schedule.mod
        passes = tvm.transform.PassContext(opt_level=3, config={"tirx.disable_assert": True})
        with passes, own_rules(target):
            module = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(scheduled)
            module = tvm.tirx.transform.BindTarget(target.with_host(target))(module)
            pipeline, finish, _ = tvm.tirx.get_default_tir_pipeline(target)
            return str(finish()(pipeline(module)).script())

    equal = [text(left) == text(right) for left, right in chosen]
    ratios = [max(left.time_us, right.time_us) / min(left.time_us, right.time_us) for left, right in chosen]
    return {
        "described": counts["described"],
        "twins": counts["twins"],
        "sample": len(chosen),
        "same_text": sum(equal),
        "time_ratio": round(statistics.median(ratios), 4) if ratios else None,
        "time_ratio_p90": round(statistics.quantiles(ratios, n=10)[8], 4) if len(ratios) > 1 else None,
    }


def main() -> None:
    """All runs of the records."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("records", nargs="+")
    parser.add_argument("--sample", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for path in options.records:
        with Store.open(path, create=False) as store:
            measured = {m.candidate.digest: m for m in store.measurements.find() if m.outcome.ok}
            for run in store.runs.list():
                found = trials(store, run.run_id, measured)
                dear, of_building, lost = without_the_dear(found)
                row = {
                    "model": run.model_name,
                    "trials": len(found),
                    "build_s_median": round(statistics.median(t.build_s for t in found), 4),
                    "build_share_of_dearest_5_percent": round(share_of_dearest([t.build_s for t in found], 0.05), 3),
                    "dear": round(dear, 3),
                    "build_share_of_dear": round(of_building, 3),
                    "worst_loss_without_dear": round(lost, 3),
                    "profile_share_of_dearest_1_percent": round(
                        share_of_dearest([t.profile_s for t in found], 0.01), 3
                    ),
                    **twins(store, found, options.sample, options.seed),
                }
                print(", ".join(f"{key} {value}" for key, value in row.items()))
                rows.append(row)
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    RESULTS.write_text(json.dumps({"date": today, "cpu": inspect_machine().cpu, "runs": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
