"""Compares ways to choose candidates: which finds faster programs with the same number of trials.

    python benchmarks/proposers.py zoo:bert_base --subgraphs dense:3 --trials 400 --seeds 0 1 2

Searches the heaviest subgraphs of the operators named, and only these, in each way and with each seed.  Candidates are
measured when they are chosen; a run of this script measures each candidate once, so that equal candidates have equal
times.  Results, a row for each search, are appended to `notebook/results/proposers.json`.
"""

from __future__ import annotations

import argparse
import datetime
import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from local_workers import build, builders

from kintune.core.candidate import Candidate
from kintune.core.config import Strategy
from kintune.core.outcome import Outcome
from kintune.core.stage_requests import BuildContext, ProfileContext, ProfileItem
from kintune.core.stage_results import Prepared
from kintune.core.workload import Subgraph
from kintune.hardware.cpu import data_caches, inspect_machine
from kintune.models.ref import parse_ref
from kintune.search.draft.drafter import draft
from kintune.search.propose import Proposer, propose
from kintune.search.session import SearchSession
from kintune.search.space import SearchSpace
from kintune.tuning.estimation import preparing
from kintune_lab.families.samples import subject_of

RESULTS = Path(__file__).parents[1] / "notebook/results" / "proposers.json"
WAYS: dict[str, tuple[Strategy, Proposer]] = {
    "plain": (Strategy(), partial(propose, drafts=1.5)),
    "draft": (Strategy(), draft),
    "half the drafts": (Strategy(), partial(propose, drafts=0.75)),
    "a draft a pick": (Strategy(), partial(propose, drafts=0.5)),
    "more drafts": (Strategy(), partial(propose, drafts=4.0)),
    "many drafts": (Strategy(), partial(propose, drafts=12.0)),
    "rounds of 32": (Strategy(round_size=32, foresee_size=8), propose),
    "rounds of 16": (Strategy(round_size=16, foresee_size=4), propose),
}
AT = (50, 100, 150, 200, 300, 400, 600, 800)


def chosen(prepared: Prepared, wanted: dict[str, int]) -> list[Subgraph]:
    """The heaviest subgraphs, the given number of each operator."""
    found: list[Subgraph] = []
    counts: Counter[str] = Counter()
    for subgraph in sorted(prepared.subgraphs, key=lambda s: -s.weight * s.flops):
        if subgraph.tunable and counts[subgraph.operator] < wanted.get(subgraph.operator, 0):
            counts[subgraph.operator] += 1
            found.append(subgraph)
    return found


def search(
    subgraphs: Sequence[Subgraph],
    space: SearchSpace,
    way: str,
    trials: int,
    seed: int,
    measure: Callable[[Sequence[Candidate]], Sequence[Outcome]],
) -> list[tuple[int, float]]:
    """Search; returns after each round the trials so far and the estimated latency in milliseconds."""
    strategy, proposer = WAYS[way]
    session = SearchSession(
        [subject_of(s) for s in subgraphs], space, strategy, seed=seed, threads=2, proposer=proposer
    )
    curve: list[tuple[int, float]] = []
    measured = 0
    while measured < trials and (plan := session.plan(trials - measured)) is not None:
        proposals = [p for p in session.select(plan)[0] if p.origin != "untuned"]
        picks = {p.draft.candidate: p.draft.features for p in proposals}
        session.begin(plan, picks, {p.draft.candidate: p.predicted for p in proposals})
        for candidate, outcome in zip(picks, measure(list(picks)), strict=True):
            session.observe(candidate, outcome)
        measured += len(picks)
        learnt = session.learn()
        session.adopt(learnt.models, learnt.families)
        curve.append((measured, session.latency_us() / 1e3))
    return curve


def main() -> None:
    """Run all ways for each seed, in turns."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--subgraphs", nargs="+", default=["dense:3"], metavar="OPERATOR:COUNT")
    parser.add_argument("--trials", type=int, default=400)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--ways", nargs="+", default=["plain", "draft"], choices=list(WAYS))
    options = parser.parse_args()
    wanted = {operator: int(count) for operator, _, count in (each.partition(":") for each in options.subgraphs)}
    with preparing() as prepare:
        prepared = prepare(parse_ref(options.model))

    import tvm

    from kintune.compiler.space.generator import load_intrinsics
    from kintune.compiler.space.replay import load_workload
    from kintune.compiler.space.tvm_space import TvmSpace
    from kintune.measure.run import Runner
    from kintune.search.processor import Processor
    from kintune.workers.device_worker import open_device

    load_intrinsics()
    about, _ = open_device("native", 0)
    subgraphs = chosen(prepared, wanted)
    modules = {s.workload: prepared.modules[s.workload] for s in subgraphs}
    sketches = [sketch for sketch in prepared.sketches if sketch.workload in modules]
    machine = Processor.of(about.device_type.isa, about.protocol.threads, data_caches(inspect_machine()))
    target = tvm.target.Target(json.loads(about.device_type.target))
    context = BuildContext(about.device_type.target, modules, {sketch.digest: sketch for sketch in sketches})
    known: dict[Candidate, Outcome] = {}
    runner = Runner(about.cores)
    rows: list[dict[str, object]] = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    with builders(len(about.cores), context) as pool:
        references = dict(zip(modules, pool.map(build, [Candidate.untuned(w) for w in modules]), strict=True))
        runner.begin(ProfileContext(about.protocol, references))

        def measure(candidates: Sequence[Candidate]) -> list[Outcome]:
            fresh = [candidate for candidate in candidates if candidate not in known]
            for candidate, built in zip(fresh, list(pool.map(build, fresh)), strict=True):
                known[candidate] = runner.profile(ProfileItem(candidate.workload, built))
            return [known[candidate] for candidate in candidates]

        for seed in options.seeds:
            for name in options.ways:
                loaded = {workload: load_workload(module) for workload, module in modules.items()}
                space = TvmSpace(loaded, sketches, target, machine, len(about.cores))
                began = time.monotonic()
                curve = search(subgraphs, space, name, options.trials, seed, measure)
                best = {at: min(ms for n, ms in curve if n <= at) for at in AT if at <= options.trials}
                print(f"{options.model} seed {seed} {name}: " + "  ".join(f"@{at} {ms:.2f}" for at, ms in best.items()))
                rows.append(
                    {
                        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
                        "cpu": about.machine.cpu,
                        "model": options.model,
                        "subgraphs": options.subgraphs,
                        "seed": seed,
                        "way": name,
                        "seconds": round(time.monotonic() - began, 1),
                        "curve": [(n, round(ms, 4)) for n, ms in curve],
                    }
                )
                RESULTS.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
