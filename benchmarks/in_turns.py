"""Builds programs of a tuned network again and times them in turns; for `fidelity.py` and `finalists.py`."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from local_workers import build, builders
from one_run import tune

from kintune.core.candidate import UNTUNED, Candidate
from kintune.core.outcome import Outcome
from kintune.core.stage_requests import BuildContext, ProfileContext, ProfileItem
from kintune.records import Measurement, Store

__all__ = ["REPEATS", "Timed", "in_turns"]

REPEATS = 15


class Timed(NamedTuple):
    """The `programs` of a subgraph, and the microseconds of their repeats by program and round."""

    name: str
    programs: list[Measurement]
    times_us: list[list[tuple[float, ...]]]


def in_turns(
    model: str,
    minutes: float,
    subgraphs: int,
    rounds: int,
    choose: Callable[[Sequence[Measurement]], list[Measurement]],
) -> list[Timed]:
    """Tune a network cold, and time the programs of its heaviest subgraphs that `choose` returns.

    Each round times all of them, subgraph by subgraph, every other round in reverse order.  A temporary disturbance
    then affects one round of a program at most.  Programs that fail once are left out.
    """
    from kintune.measure.run import Runner
    from kintune.workers.device_worker import open_device

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
    chosen = {w: choose([m for m in measured if m.candidate.workload == w]) for w in heaviest}
    about, _ = open_device("native", 0)
    with builders(len(about.cores), BuildContext(about.device_type.target, modules, sketches)) as pool:
        references = dict(zip(heaviest, pool.map(build, map(Candidate.untuned, heaviest)), strict=True))
        timed = [m for w in heaviest for m in chosen[w]]
        libraries = list(pool.map(build, [m.candidate for m in timed]))
    usual = about.protocol.with_operands(operands)
    protocol = msgspec.structs.replace(usual, repeats=REPEATS, max_seconds=2 * usual.max_seconds)
    context = ProfileContext(protocol, references)
    runner = Runner(about.cores)
    times: list[list[tuple[float, ...]]] = [[] for _ in timed]
    for number in range(rounds):
        runner.begin(context)
        order = list(range(len(timed)))
        for place in reversed(order) if number % 2 else order:
            item = ProfileItem(timed[place].candidate.workload, libraries[place])
            outcome: Outcome = runner.profile(item)
            times[place] += [outcome.times_us] if outcome.ok else []
    return [_of(workload, names[workload], timed, times, rounds) for workload in heaviest]


def _of(
    workload: str, name: str, timed: Sequence[Measurement], times: list[list[tuple[float, ...]]], rounds: int
) -> Timed:
    own = [place for place, m in enumerate(timed) if m.candidate.workload == workload]
    complete = [place for place in own if len(times[place]) == rounds]
    return Timed(name, [timed[place] for place in complete], [times[place] for place in complete])
