"""Measures whether the short timings of a search find the fastest of the programs that it measured.

    python benchmarks/fidelity.py zoo:mobilenet_v2 zoo:bert_base --minutes 3

Each network is tuned cold.  Of each of its heaviest subgraphs, the programs that were fastest in the search are built
again, and the fastest of those that were timed only once because they looked slow.  They are timed in turns, all
subgraphs in each of many rounds of fifteen repeats.  The median over the rounds is taken as the true time.  The result
is how much slower than the truly fastest program are the one that was fastest by the search's times (of five timings at
most), and the one that the job chose in the end (of eight finalists at most, timed five times more).  The smallest of
many noisy figures is biased low, so the results are upper bounds.  They go to `notebook/results/fidelity.json`.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from in_turns import Timed, in_turns

from kintune.hardware.cpu import inspect_machine
from kintune.records import Measurement

RESULTS = Path(__file__).parents[1] / "notebook/results" / "fidelity.json"


def programs_of(most: int, measured: Sequence[Measurement]) -> list[Measurement]:
    """The fastest by their first timing, the fastest of those that were timed once, and all confirmed ones."""
    ranked = sorted(measured, key=lambda m: m.outcome.median_us)
    once = [m for m in ranked if len(m.outcome.times_us) == 1][: most // 3]
    finalists = [m for m in ranked if m.confirmed is not None]
    return list({m.id: m for m in (*ranked[:most], *once, *finalists)}.values())


def row_of(model: str, timed: Timed) -> dict[str, Any]:
    """How much slower than the truly fastest program are those that were chosen."""
    pairs = zip(timed.programs, timed.times_us, strict=True)
    rounds = {m.id: [statistics.median(times) for times in found] for m, found in pairs}
    medians = {number: statistics.median(found) for number, found in rounds.items()}
    spreads = [_middle_half(found) / medians[number] for number, found in rounds.items()]
    best = min(medians.values())
    taken = min(timed.programs, key=lambda m: m.outcome.median_us)
    confirmed = [(m.confirmed.median_us, m.id) for m in timed.programs if m.confirmed is not None]
    shipped = min(confirmed)[1] if confirmed else taken.id
    once = [medians[m.id] for m in timed.programs if len(m.outcome.times_us) == 1]
    return {
        "model": model,
        "subgraph": timed.name,
        "programs": len(timed.programs),
        "best_us": round(best, 2),
        "spread": round(statistics.median(spreads), 4),
        "taken_over_best": round(medians[taken.id] / best, 4),
        "shipped_over_best": round(medians[shipped] / best, 4),
        "timed_once_over_best": round(min(once) / best, 4) if once else None,
    }


def _middle_half(values: Sequence[float]) -> float:
    quarters = statistics.quantiles(values, n=4)
    return quarters[2] - quarters[0]


def main() -> None:
    """All models, one after the other."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--subgraphs", type=int, default=8)
    parser.add_argument("--programs", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    rows = []
    for model in options.models:
        print(model)
        choose = partial(programs_of, options.programs)
        for timed in in_turns(model, options.minutes, options.subgraphs, options.rounds, choose):
            rows.append(row_of(model, timed))
            print("  " + ", ".join(f"{key} {value}" for key, value in rows[-1].items() if key != "model"))
    for key in ("taken_over_best", "shipped_over_best"):
        found = sorted(row[key] for row in rows)
        print(f"{key}: median {statistics.median(found):.4f}, worst {found[-1]:.4f}, of {len(found)} subgraphs")
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    options.out.write_text(json.dumps({"date": today, "cpu": inspect_machine().cpu, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
