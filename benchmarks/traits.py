"""Compares descriptions of candidates for ranking: analytic features, features of the compiled program, or both.

    python benchmarks/traits.py RECORDS.sqlite ...

Takes the measured candidates of earlier runs, those of sketches with analytic features, of every subgraph with 100 of
them, and computes both descriptions anew.  Models of one kind (`kintune.search.cost_model.Trees`) learn from a
number of samples of a subgraph and rank the others; or they learn from other subgraphs of the same operator alone, or
from these and 32 samples.  Results go to `notebook/results/traits.json`.
"""

from __future__ import annotations

import argparse
import datetime
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tvm
from numpy.typing import NDArray

from kintune.compiler.space.features import FeatureExtractor
from kintune.compiler.space.loop_analysis import access_patterns, tiled_block
from kintune.compiler.space.replay import Replayer, load_workload
from kintune.core.candidate import Candidate
from kintune.hardware.cpu import data_caches, inspect_machine
from kintune.records import Store
from kintune.search.cost_model import Trees
from kintune.search.features.field import Field, fields_of
from kintune.search.processor import Processor
from kintune.search.ranking import best_of, pair_accuracy

RESULTS = Path(__file__).parents[1] / "notebook/results" / "traits.json"
LEAST = 100
LEARNT_FROM = (32, 64, 128, 256)
SURVIVE = 0.02

Rows = NDArray[np.float32]


class Subgraph(NamedTuple):
    """Measured candidates of one subgraph: both descriptions, row by row, and times."""

    operator: str
    signature: str
    traits: Rows
    full: Rows
    times_us: NDArray[np.float64]

    @property
    def labels(self) -> Rows:
        """Relative speeds, 0 for those that failed."""
        return _labels(self.times_us)

    def described(self, how: str) -> Rows:
        """One of the three descriptions."""
        return {"traits": self.traits, "full": self.full}.get(how, np.hstack([self.traits, self.full]))


def read(path: Path) -> Iterator[Subgraph]:
    """The subgraphs of a records file that have enough measured candidates with analytic features."""
    with Store.open(path, create=False) as store:
        device = max(store.devices.list(), key=lambda each: len(store.measurements.find(device_type=each.digest)))
        target = tvm.target.Target(json.loads(device.target))
        machine = Processor.of(device.isa, device.threads, data_caches(inspect_machine()))
        for workload in store.workloads.list():
            sketches = {sketch.digest: sketch for sketch in store.workloads.sketches([workload.digest])}
            module = load_workload(store.workloads.module(workload.digest))
            block = next(filter(None, map(tiled_block, sketches.values())), None)
            fields = fields_of(tuple(sketches.values()), access_patterns(module, block) if block else None, machine)
            found = store.measurements.find(workloads=[workload.digest], device_type=device.digest)
            times = {row.candidate: row.outcome.median_us for row in found}
            for field in fields:
                own = [candidate for candidate in times if candidate in field.encoding]
                if len(own) >= LEAST:
                    replayer = Replayer(module, target)
                    extract = FeatureExtractor(replayer.context)
                    full = [extract([replayer(sketches[c.sketch], c).schedule])[0] for c in own]
                    yield Subgraph(
                        workload.operator,
                        workload.signature,
                        _traits(field, own),
                        np.stack(full),
                        np.array([times[c] for c in own]),
                    )
                    print(f"{workload.operator} {workload.signature}: {len(own)}")


def _traits(field: Field, candidates: list[Candidate]) -> Rows:
    began = time.perf_counter()
    rows = field.features(field.encoding.encode(candidates))
    print(f"  {1e6 * (time.perf_counter() - began) / len(candidates):.1f} us a candidate")
    return rows


def ranked(subgraphs: list[Subgraph]) -> Iterator[dict[str, object]]:
    """A row for each way to learn and to describe: means over subgraphs."""
    generator = np.random.default_rng(0)
    for how in ("traits", "full", "both"):
        for count in LEARNT_FROM:
            scores = []
            for subgraph in subgraphs:
                if len(subgraph.times_us) >= 1.5 * count:
                    order = generator.permutation(len(subgraph.times_us))
                    learnt, rest = order[:count], order[count:]
                    rows = subgraph.described(how)
                    model = _trained(rows[learnt], _labels(subgraph.times_us[learnt]))
                    scores.append(_score(model.predict(rows[rest]), subgraph.times_us[rest]))
            yield _row(how, f"{count} samples", scores)
        for count in (0, 32):
            scores = []
            for subgraph in subgraphs:
                kin = [s for s in subgraphs if s.operator == subgraph.operator and s is not subgraph]
                if kin:
                    order = generator.permutation(len(subgraph.times_us))
                    learnt, rest = order[:count], order[count:]
                    rows = subgraph.described(how)
                    model = _trained(
                        np.concatenate([*(s.described(how) for s in kin), rows[learnt]]),
                        np.concatenate([*(s.labels for s in kin), _labels(subgraph.times_us[learnt])]),
                    )
                    scores.append(_score(model.predict(rows[rest]), subgraph.times_us[rest]))
            yield _row(how, f"kin and {count} samples" if count else "kin", scores)
    estimates = [_score(Field.estimate(s.traits), s.times_us) for s in subgraphs]
    yield _row("traits", "nothing: the estimate", estimates)


def _trained(rows: Rows, labels: Rows) -> Trees:
    return Trees.train(rows, labels, seed=0, threads=2)


def _labels(times_us: NDArray[np.float64]) -> Rows:
    if not times_us.size:
        return np.zeros(0, np.float32)
    return np.where(np.isfinite(times_us), times_us.min() / times_us, 0.0).astype(np.float32)


def _score(scores: Rows, times_us: NDArray[np.float64]) -> tuple[float, float]:
    return pair_accuracy(scores, times_us)[0], best_of(scores, times_us, max(2, int(SURVIVE * len(times_us))))


def _row(how: str, learnt_from: str, scores: list[tuple[float, float]]) -> dict[str, object]:
    pairs, best = np.array(scores).T
    row = {
        "described_by": how,
        "learnt_from": learnt_from,
        "subgraphs": len(scores),
        "pair_accuracy": round(float(np.nanmean(pairs)), 4),
        "best_of_two_percent": round(float(np.nanmean(best)), 4),
    }
    print("  ".join(f"{name} {value}" for name, value in row.items()))
    return row


def main() -> None:
    """Read, rank, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("records", nargs="+", type=Path)
    options = parser.parse_args()
    networks = []
    for path in options.records:
        subgraphs = list(read(path))
        networks.append({"subgraphs": len(subgraphs), "rows": list(ranked(subgraphs))})
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    RESULTS.write_text(json.dumps({"date": today, "networks": networks}, indent=1) + "\n")


if __name__ == "__main__":
    main()
