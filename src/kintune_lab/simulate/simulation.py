"""Plays every setup of a spec with every seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from kintune.errors import InputError
from kintune.scheduler.invariants import Auditor
from kintune.scheduler.policies import POLICIES
from kintune_lab.simulate.history import ScheduleHistory
from kintune_lab.simulate.metrics import Played, Simulated, SimulationOutcome, metrics_of, outcome_of
from kintune_lab.simulate.recorded import Recorded, retrace
from kintune_lab.simulate.simulator import Simulator
from kintune_lab.simulate.spec import Scenario, ScheduleSpec, Setup

__all__ = ["again", "play", "simulate", "simulate_recorded"]


def play(spec: ScheduleSpec, setup: Setup, seed: int, *, audit: bool = True) -> tuple[Scenario, ScheduleHistory]:
    """Returns what is simulated for a seed, and its history under one setup.

    With `audit`, every decision is checked against independent bookkeeping.

    Raises:
        SchedulerError: the schedule stands still, or breaks an invariant.
    """
    scenario = spec.scenario(seed, setup.copies)
    return scenario, _play(scenario, setup, audit=audit)


def simulate(
    spec: ScheduleSpec,
    *,
    audit: bool = False,
    on_progress: Callable[[int, int], None] | None = None,
    on_history: Callable[[str, Scenario, ScheduleHistory], None] | None = None,
) -> Simulated:
    """Play every setup with every seed, and return the metrics.

    `on_progress` is called with the numbers of schedules that are played and of all; `on_history` with each schedule of
    the first seed.
    """
    played: list[Played] = []
    todo = len(spec.seeds) * len(spec.setups)
    for setup, seed in _cells(spec):
        scenario, history = play(spec, setup, seed, audit=audit)
        outages = scenario.faults.outages(scenario.resources)
        metrics = metrics_of(history, scenario.jobs, scenario.resources, outages=outages)
        played.append(Played(setup.name, seed, metrics))
        if on_history is not None and seed == spec.seeds[0]:
            on_history(setup.name, scenario, history)
        if on_progress is not None:
            on_progress(len(played), todo)
    outcomes = tuple(outcome_of(setup, [p.accounts for p in played if p.setup == setup.name]) for setup in spec.setups)
    return Simulated(spec.name, spec.description, len(spec.seeds), outcomes, tuple(played))


def again(recorded: Recorded) -> list[Setup]:
    """Returns setups to schedule the jobs of a recording again: one for each policy that waives no limit."""
    bundling = recorded.header.bundling
    return [Setup(name, bundling=bundling) for name, kind in POLICIES.items() if not kind.overbooks]


def simulate_recorded(
    recorded: Recorded,
    *,
    setups: Sequence[Setup],
    audit: bool = False,
    on_history: Callable[[str, Scenario, ScheduleHistory], None] | None = None,
) -> Simulated:
    """Returns the metrics of a recorded schedule, and of the same stages under other policies.

    Raises:
        InputError: today's scheduler would not have decided so, or it was cut off.
    """
    recorded.play_again()
    traced = retrace(recorded)
    if traced.under_way or not traced.jobs:
        when = f"while {', '.join(traced.under_way)} was under way" if traced.under_way else "before the first job"
        raise InputError(f"{recorded.path}: was cut off {when}; only a whole recording can be compared")
    scenario = Scenario(recorded.resources, traced.jobs)
    header = recorded.header
    was = Setup(header.policy, label=f"as recorded ({header.policy})", bundling=header.bundling)
    histories = [(was, traced.history), *((setup, _play(scenario, setup, audit=audit)) for setup in setups)]
    played: list[Played] = []
    outcomes: list[SimulationOutcome] = []
    for setup, history in histories:
        metrics = metrics_of(history, scenario.jobs, scenario.resources, chains=False)
        played.append(Played(setup.name, 0, metrics))
        outcomes.append(outcome_of(setup, [metrics]))
        if on_history is not None:
            on_history(setup.name, scenario, history)
    names = ", ".join(dict.fromkeys(header.names.values()))
    return Simulated(recorded.path, names, 1, tuple(outcomes), tuple(played))


def _play(scenario: Scenario, setup: Setup, *, audit: bool) -> ScheduleHistory:
    auditor = Auditor(POLICIES[setup.policy].overbooks, POLICIES[setup.policy].starvation_free) if audit else None
    simulator = Simulator(
        setup.machine(),
        scenario.resources,
        scenario.jobs,
        interference=setup.interference,
        faults=scenario.faults,
        observe=auditor.observe if auditor else None,
    )
    return simulator.run()


def _cells(spec: ScheduleSpec) -> Iterator[tuple[Setup, int]]:
    for seed in spec.seeds:
        for setup in spec.setups:
            yield setup, seed
