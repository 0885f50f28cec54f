"""Programs of a tuned network, built again and timed in turns, for the benchmarks beside this file."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from local_workers import build, builders
from one_run import tune

from kintune.measure.outcome import Outcome
from kintune.measure.requests import BuildContext, ProfileContext, ProfileItem
from kintune.records import Measurement, Store
from kintune.space.candidate import UNTUNED, Candidate

__all__ = ["REPEATS", "Timed", "in_turns"]

REPEATS = 15


class Timed(NamedTuple):
    """A subgraph's `programs`, and of each, by round, the microseconds of its repeats."""

    name: str
    programs: list[Measurement]
    times_us: list[list[tuple[float, ...]]]


def in_turns(
    model: str,
    minutes: float,
    subgraphs: int,
    rounds: int,
    choose: Callable[[Sequence[Measurement]], list[Measurement]],
) -> Iterator[Timed]:
    """Tune a network as a user would, cold, and time programs of its heaviest subgraphs: `choose` says which.

    Each round times them all, every other one in reverse order.  Who fails once is left out.
    """
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
    with builders(len(about.cores), BuildContext(about.device_type.target, modules, sketches)) as pool:
        for workload in heaviest:
            chosen = choose([m for m in measured if m.candidate.workload == workload])
            reference, *libraries = pool.map(build, [Candidate.untuned(workload), *(m.candidate for m in chosen)])
            runner.begin(ProfileContext(protocol, {workload: reference}))
            times: list[list[tuple[float, ...]]] = [[] for _ in chosen]
            for number in range(rounds):
                order = list(range(len(chosen)))
                for place in reversed(order) if number % 2 else order:
                    outcome: Outcome = runner.profile(ProfileItem(workload, libraries[place]))
                    times[place] += [outcome.times_us] if outcome.ok else []
            complete = [place for place, found in enumerate(times) if len(found) == rounds]
            yield Timed(names[workload], [chosen[place] for place in complete], [times[place] for place in complete])
