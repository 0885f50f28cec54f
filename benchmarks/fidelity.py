"""Does the cheap timing of a search find the fastest of the programs that it measured?

    python benchmarks/fidelity.py zoo:mobilenet_v2 zoo:bert_base --minutes 3

Each network is tuned as a user would, cold.  Of each of its heaviest subgraphs the programs that came out fastest are
built again, and with them the fastest of those that were timed but once because they looked slow.  They are timed in
turns, in many rounds of fifteen repeats; the median over the rounds is taken for the truth.  Asked is how much slower
than the truly fastest is the one that the search took for the fastest (after timing it five times at most), and the one
that the job chose in the end (of three finalists, timed fifteen times).  The best of many noisy figures is always a
little too good, so what is found is rather too much.  Results go to `benchmarks/results/fidelity.json`.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from local_workers import build, builders
from one_run import tune

from kintune.doctor.machine import inspect_machine
from kintune.measure.outcome import Outcome
from kintune.measure.requests import BuildContext, ProfileContext, ProfileItem
from kintune.records import Measurement, Store
from kintune.space.candidate import UNTUNED, Candidate

RESULTS = Path(__file__).parent / "results" / "fidelity.json"
REPEATS = 15  # as where finalists are confirmed


def contenders(measured: Sequence[Measurement], most: int) -> list[Measurement]:
    """The fastest by their first timing, and the fastest of those that were timed once; confirmed ones always."""
    ranked = sorted(measured, key=lambda m: m.outcome.median_us)
    once = [m for m in ranked if len(m.outcome.times_us) == 1][: most // 3]
    finalists = [m for m in ranked if m.confirmed is not None]
    return list({m.id: m for m in (*ranked[:most], *once, *finalists)}.values())


def truth(
    runner: Any, context: ProfileContext, built: dict[Candidate, Any], rounds: int
) -> tuple[dict[Candidate, float], dict[Candidate, float]]:
    """The median over rounds of each candidate's median, and how far apart the middle half of them lies, relatively."""
    runner.begin(context)
    times: dict[Candidate, list[float]] = {candidate: [] for candidate in built}
    for number in range(rounds):
        order = list(built) if number % 2 == 0 else list(reversed(built))
        for candidate in order:
            outcome: Outcome = runner.profile(ProfileItem(candidate.workload, built[candidate]))
            if outcome.ok:
                times[candidate].append(outcome.median_us)
    complete = {candidate: found for candidate, found in times.items() if len(found) == rounds}
    medians = {candidate: statistics.median(found) for candidate, found in complete.items()}
    spreads = {}
    for candidate, found in complete.items():
        quarters = statistics.quantiles(found, n=4)
        spreads[candidate] = (quarters[2] - quarters[0]) / medians[candidate]
    return medians, spreads


def examine(model: str, minutes: float, subgraphs: int, most: int, rounds: int) -> list[dict[str, Any]]:
    """One row a subgraph."""
    from kintune.measure.device_worker import open_device
    from kintune.measure.run import Runner

    with tempfile.TemporaryDirectory() as directory:
        report = tune(model, minutes, Path(directory))
        with Store.open(Path(directory) / "records.sqlite") as store:
            measured = [m for m in store.measurements.find() if m.outcome.ok and m.candidate.sketch != UNTUNED]
            digests = sorted({m.candidate.workload for m in measured})
            modules = {digest: store.workloads.module(digest) for digest in digests}
            names = {digest: store.workloads.get(digest).name for digest in digests}
            sketches = {sketch.digest: sketch for sketch in store.workloads.sketches(digests)}
            operands = store.devices.get(measured[0].device_type).operands
    share = {s["name"]: s["weight"] * s["best_us"] for s in report["subgraphs"] if s["best_us"] and s["trials"]}
    heaviest = sorted((d for d in digests if names[d] in share), key=lambda d: -share[names[d]])[:subgraphs]
    about, _ = open_device("native", 0)
    runner = Runner(about.cores)
    usual = about.protocol.with_operands(operands)
    protocol = msgspec.structs.replace(usual, repeats=REPEATS, max_seconds=2 * usual.max_seconds)
    rows = []
    with builders(len(about.cores), BuildContext(about.device_type.target, modules, sketches)) as pool:
        for workload in heaviest:
            chosen = contenders([m for m in measured if m.candidate.workload == workload], most)
            candidates = [m.candidate for m in chosen]
            reference, *libraries = pool.map(build, [Candidate.untuned(workload), *candidates])
            built = dict(zip(candidates, libraries, strict=True))
            medians, spreads = truth(runner, ProfileContext(protocol, {workload: reference}), built, rounds)
            rows.append(_row(model, names[workload], chosen, medians, spreads))
            print("  " + ", ".join(f"{key} {value}" for key, value in rows[-1].items() if key != "model"))
    return rows


def _row(
    model: str,
    name: str,
    chosen: Sequence[Measurement],
    medians: dict[Candidate, float],
    spreads: dict[Candidate, float],
) -> dict[str, Any]:
    known = [m for m in chosen if m.candidate in medians]
    best = min(medians.values())
    taken = min(known, key=lambda m: m.outcome.median_us)
    confirmed = [(m.confirmed.median_us, m) for m in known if m.confirmed is not None]
    shipped = min(confirmed, key=lambda pair: pair[0])[1] if confirmed else taken
    once = [medians[m.candidate] for m in known if len(m.outcome.times_us) == 1]
    return {
        "model": model,
        "subgraph": name,
        "programs": len(known),
        "best_us": round(best, 2),
        "spread": round(statistics.median(spreads.values()), 4),
        "taken_over_best": round(medians[taken.candidate] / best, 4),
        "shipped_over_best": round(medians[shipped.candidate] / best, 4),
        "timed_once_over_best": round(min(once) / best, 4) if once else None,
    }


def main() -> None:
    """All models, one after the other."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--subgraphs", type=int, default=8)
    parser.add_argument("--programs", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=8)
    options = parser.parse_args()
    rows = []
    for model in options.models:
        print(model)
        rows += examine(model, options.minutes, options.subgraphs, options.programs, options.rounds)
    for key in ("taken_over_best", "shipped_over_best"):
        found = sorted(row[key] for row in rows)
        print(f"{key}: median {statistics.median(found):.4f}, worst {found[-1]:.4f}, of {len(found)} subgraphs")
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    RESULTS.write_text(json.dumps({"date": today, "cpu": inspect_machine().cpu, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
