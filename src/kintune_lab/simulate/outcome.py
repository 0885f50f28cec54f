"""What comes of playing schedules: each by itself, and a way to schedule over all seeds."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import msgspec

from kintune_lab.simulate.accounts import Accounts
from kintune_lab.simulate.spec import Setup

__all__ = ["Played", "Simulated", "SimulationOutcome", "outcome_of"]


class Played(msgspec.Struct, frozen=True):
    """One setup with one seed."""

    setup: str
    seed: int
    accounts: Accounts


class SimulationOutcome(msgspec.Struct, frozen=True):
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
    outcomes: tuple[SimulationOutcome, ...]
    played: tuple[Played, ...]
    schema_version: int = 1


def outcome_of(setup: Setup, all: Sequence[Accounts]) -> SimulationOutcome:
    """Medians and worst over all seeds."""

    def median(values: Sequence[float]) -> float:
        return statistics.median(values)

    def use(accounts: Accounts, kind: str) -> float:
        found = [share for id, share in accounts.use.items() if accounts.kinds[id] == kind]
        return statistics.fmean(found) if found else 0.0

    return SimulationOutcome(
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
