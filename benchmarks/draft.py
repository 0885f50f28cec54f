"""Measures how much slower the best candidate that the draft keeps is than the best of all.

    python benchmarks/draft.py zoo:mobilenet_v2_0.5 zoo:bert_base

For the heaviest subgraph of each operator that the draft serves, candidates are drawn uniformly from what an evolution
ranks, the rule's candidates included, and all of them are measured as a tuning job measures them.  Then the draft
chooses 2 % of them.  The question is how much slower the fastest of these is than the fastest of all: chosen by the
estimate alone, and by models of a number of samples of the same subgraph, which are left out of the choice.  The pools
are stored in `notebook/results/draft/` and measured only if they are missing.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from local_workers import build, builders
from numpy.typing import NDArray

from kintune.core.candidate import Candidate
from kintune.core.stage_requests import BuildContext, ProfileContext, ProfileItem
from kintune.core.stage_results import Prepared
from kintune.core.workload import Subgraph
from kintune.hardware.cpu import data_caches, inspect_machine
from kintune.models.ref import parse_ref
from kintune.search.cost_model import Trees, relative_speeds
from kintune.search.draft.evolution import evolve
from kintune.search.features.encoding import Population
from kintune.search.features.field import Field
from kintune.search.ranking import pair_accuracy
from kintune.search.space import SearchSpace
from kintune.tuning.estimation import preparing
from kintune_lab.families.samples import SubgraphSamples, subject_of
from kintune_lab.pools.pool import Origin, Pool, load_pool, save_pool

RESULTS = Path(__file__).parents[1] / "notebook/results" / "draft"
SURVIVE = 0.02
LEARNT_FROM = (64, 256)
DRAWS = 20  # of the samples that models learn from
BATCH = 32


def collect(model: str, samples: int, seed: int) -> Pool:
    """Measure `samples` candidates of each subgraph that `chosen` returns."""
    with preparing() as prepare:
        prepared = prepare(parse_ref(model))

    import tvm

    from kintune.compiler.space.replay import load_workload
    from kintune.compiler.space.tvm_space import TvmSpace
    from kintune.measure.run import Runner
    from kintune.search.processor import Processor
    from kintune.workers.device_worker import open_device

    about, _ = open_device("native", 0)
    target = tvm.target.Target(json.loads(about.device_type.target))
    machine = Processor.of(about.device_type.isa, about.protocol.threads, data_caches(inspect_machine()))
    modules = {workload: load_workload(module) for workload, module in prepared.modules.items()}
    space = TvmSpace(modules, prepared.sketches, target, machine, len(about.cores))
    runner = Runner(about.cores)
    context = BuildContext(about.device_type.target, prepared.modules, {s.digest: s for s in prepared.sketches})
    measured: dict[str, SubgraphSamples] = {}
    with builders(len(about.cores), context) as pool:
        for subgraph in chosen(prepared, space):
            drawn = draw(space, subgraph.workload, samples, np.random.default_rng(seed))
            drafts = [draft for draft in space.verify(drawn) if draft is not None]
            plain = Candidate.untuned(subgraph.workload)
            reference = pool.submit(build, plain).result()
            runner.begin(ProfileContext(about.protocol, {subgraph.workload: reference}))
            times: list[float] = []
            began = time.monotonic()
            for at in range(0, len(drafts), BATCH):
                batch = drafts[at : at + BATCH]
                for built in list(pool.map(build, [draft.candidate for draft in batch])):
                    times.append(runner.profile(ProfileItem(subgraph.workload, built)).median_us)
                left = (time.monotonic() - began) / len(times) * (len(drafts) - len(times))
                print(f"\r{subgraph.name}: {len(times)} of {len(drafts)}, {left:.0f} s left ", end="", flush=True)
            print()
            measured[subgraph.workload] = SubgraphSamples(
                subject_of(subgraph),
                tuple(draft.candidate for draft in drafts),
                np.stack([draft.features for draft in drafts]),
                np.array(times, dtype=np.float64),
            )
    origin = Origin(model, seed, samples, about.device_type.digest, about.device_type.model, about.compiler)
    return Pool(origin, measured)


def chosen(prepared: Prepared, space: SearchSpace) -> Iterator[Subgraph]:
    """The heaviest subgraph of each operator that has a field."""
    seen: set[str] = set()
    for subgraph in sorted(prepared.subgraphs, key=lambda s: -s.weight * s.flops):
        if subgraph.operator not in seen and subgraph.tunable and space.fields(subgraph.workload):
            seen.add(subgraph.operator)
            yield subgraph


def draw(space: SearchSpace, workload: str, samples: int, rng: np.random.Generator) -> list[Candidate]:
    """Draw candidates uniformly from what an evolution by the estimate ranks, in equal shares of all fields."""
    fields: Sequence[Field] = space.fields(workload)
    rules = space.rules(workload, 256)
    drawn: list[Candidate] = []
    for field in fields:
        seeds = field.encoding.encode([c for c in rules if c in field.encoding])

        def estimate(population: Population, field: Field = field) -> NDArray[np.float32]:
            return field.estimate(field.features(population))

        ranked = evolve(field.encoding, seeds, estimate, rng, size=4096, generations=5).population
        print(f"{workload}: {len(ranked)} candidates ranked")
        share = rng.permutation(len(ranked))[: samples // len(fields)]
        drawn += field.encoding.candidates(ranked.take(share))
    return drawn


def ranked(measured: SubgraphSamples, seed: int) -> list[dict[str, object]]:
    """A row for each way to rank: the share that is kept, and the best time of all over the best of those kept."""
    rng = np.random.default_rng(seed)
    everything = np.arange(len(measured))
    rows = [_row(measured, "estimate", 0, [Field.estimate(measured.features)], [everything])]
    for count in LEARNT_FROM:
        scores, rests = [], []
        for _ in range(DRAWS):
            order = rng.permutation(len(measured))
            learnt, rest = order[:count], order[count:]
            best = measured.times_us[learnt].min(keepdims=True)
            labels = relative_speeds(np.zeros(count, np.int64), measured.times_us[learnt], best)
            model = Trees.train(measured.features[learnt], labels, seed=seed, threads=1)
            scores.append(model.predict(measured.features[rest]))
            rests.append(rest)
        rows.append(_row(measured, f"model of {count}", count, scores, rests))
    return rows


def _row(
    measured: SubgraphSamples,
    by: str,
    count: int,
    scores: Sequence[NDArray[np.float32]],
    rests: Sequence[NDArray[np.int64]],
) -> dict[str, object]:
    kept, accuracies = [], []
    for score, rest in zip(scores, rests, strict=True):
        times = measured.times_us[rest]
        survivors = np.argsort(-score, kind="stable")[: max(1, int(SURVIVE * len(rest)))]
        kept.append(float(times.min() / times[survivors].min()))
        accuracies.append(pair_accuracy(score, times)[0])
    return {
        "operator": measured.subject.operator,
        "signature": measured.subject.signature,
        "candidates": len(measured),
        "failed": int(np.isinf(measured.times_us).sum()),
        "by": by,
        "learnt_from": count,
        "best_us": float(measured.times_us.min()),
        "median_us": float(np.median(measured.times_us)),
        "kept": statistics.median(kept),
        "kept_least": min(kept),
        "pair_accuracy": statistics.median(accuracies),
    }


def main() -> None:
    """Collect pools, rank them and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    RESULTS.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, object]] = []
    for model in options.models:
        path = RESULTS / f"{model.partition(':')[2]}-{options.samples}.npz"
        if not path.exists():
            save_pool(path, collect(model, options.samples, options.seed))
        for measured in load_pool(path).subgraphs.values():
            for row in ranked(measured, options.seed):
                rows.append({"model": model, **row})
                print(
                    f"{model} {row['operator']:13} {row['by']:14} kept {row['kept']:.3f} ({row['kept_least']:.3f})"
                    f"  pairs {row['pair_accuracy']:.3f}  best {row['best_us']:.1f} us of {row['candidates']}"
                )
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    result = {"date": today, "cpu": inspect_machine().cpu, "survive": SURVIVE, "rows": rows}
    (RESULTS / "draft.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
