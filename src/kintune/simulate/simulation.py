"""Plays every setup of a spec with every seed."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence

import msgspec

from kintune.scheduler.invariants import Auditor
from kintune.scheduler.policies import POLICIES
from kintune.simulate.accounts import Accounts, accounts_of
from kintune.simulate.span import Story
from kintune.simulate.spec import Scenario, Setup, Spec
from kintune.simulate.world import World

__all__ = ["Outcome", "Played", "Simulated", "play", "simulate"]


class Played(msgspec.Struct, frozen=True):
    """One setup with one seed."""

    setup: str
    seed: int
    accounts: Accounts


class Outcome(msgspec.Struct, frozen=True):
    """A setup over all seeds: medians, and the worst of each."""

    setup: str
    policy: str
    makespan_s: float
    makespan_worst_s: float
    over_bound: float
    over_bound_worst: float
    mean_completion_s: float
    hosts_use: float
    devices_use: float
    host_wait_s: float
    device_wait_s: float
    worst_wait_s: float
    worst_share: float
    fairness: float
    measured_s: float | None


class Simulated(msgspec.Struct, frozen=True):
    """All that was played."""

    name: str
    description: str
    seeds: int
    outcomes: tuple[Outcome, ...]
    played: tuple[Played, ...]
    version: int = 1


def play(spec: Spec, setup: Setup, seed: int, *, audit: bool = True) -> tuple[Scenario, Story]:
    """What happens under one setup; with `audit`, every decision is checked against books kept apart.

    Raises:
        SchedulerError: the schedule stands still, or breaks an invariant.
    """
    scenario = spec.scenario(seed, setup.copies)
    auditor = Auditor(waives=POLICIES[setup.policy].waives) if audit else None
    faults = msgspec.structs.replace(spec.faults, seed=spec.faults.seed + seed)
    world = World(
        setup.machine(),
        scenario.resources,
        scenario.jobs,
        interference=setup.interference,
        faults=faults,
        observe=auditor.observe if auditor else None,
    )
    return scenario, world.run()


def simulate(
    spec: Spec,
    *,
    audit: bool = False,
    on_progress: Callable[[int, int], None] | None = None,
    on_story: Callable[[Setup, int, Story], None] | None = None,
) -> Simulated:
    """Play everything; `on_progress` hears how many of how many schedules are played."""
    played: list[Played] = []
    todo = len(spec.seeds) * len(spec.setups)
    for setup, seed in _cells(spec):
        scenario, story = play(spec, setup, seed, audit=audit)
        played.append(Played(setup.name, seed, accounts_of(story, scenario.jobs, scenario.resources)))
        if on_story is not None:
            on_story(setup, seed, story)
        if on_progress is not None:
            on_progress(len(played), todo)
    outcomes = tuple(_outcome(setup, [p.accounts for p in played if p.setup == setup.name]) for setup in spec.setups)
    return Simulated(spec.name, spec.description, len(spec.seeds), outcomes, tuple(played))


def _cells(spec: Spec) -> Iterator[tuple[Setup, int]]:
    for seed in spec.seeds:
        for setup in spec.setups:
            yield setup, seed


def _outcome(setup: Setup, all: Sequence[Accounts]) -> Outcome:
    def median(values: Sequence[float]) -> float:
        return statistics.median(values)

    def use(accounts: Accounts, kind: str) -> float:
        found = [share for id, share in accounts.use.items() if accounts.kinds[id] == kind]
        return statistics.fmean(found) if found else 0.0

    return Outcome(
        setup=setup.name,
        policy=setup.policy,
        makespan_s=median([a.makespan_s for a in all]),
        makespan_worst_s=max(a.makespan_s for a in all),
        over_bound=median([a.over_bound for a in all]),
        over_bound_worst=max(a.over_bound for a in all),
        mean_completion_s=median([a.mean_completion_s for a in all]),
        hosts_use=median([use(a, "host") for a in all]),
        devices_use=median([use(a, "device") for a in all]),
        host_wait_s=median([a.waiting_s.get("hosts", 0.0) for a in all]),
        device_wait_s=median([a.waiting_s.get("devices", 0.0) for a in all]),
        worst_wait_s=max(a.worst_wait_s for a in all),
        worst_share=max(a.worst_share for a in all),
        fairness=median([a.fairness for a in all]),
        measured_s=setup.measured_s,
    )
