"""Plays every setup of a spec with every seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from kintune.errors import InputError
from kintune.scheduler.invariants import Auditor
from kintune.scheduler.policies import POLICIES
from kintune_lab.simulate.accounts import accounts_of
from kintune_lab.simulate.outcome import Played, Simulated, SimulationOutcome, outcome_of
from kintune_lab.simulate.recorded import Recorded
from kintune_lab.simulate.retrace import retrace
from kintune_lab.simulate.span import ScheduleHistory
from kintune_lab.simulate.spec import Scenario, ScheduleSpec, Setup
from kintune_lab.simulate.world import World

__all__ = ["again", "play", "simulate", "simulate_recorded"]


def play(spec: ScheduleSpec, setup: Setup, seed: int, *, audit: bool = True) -> tuple[Scenario, ScheduleHistory]:
    """What happens under one setup; with `audit`, every decision is checked against books kept apart.

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
    on_story: Callable[[str, Scenario, ScheduleHistory], None] | None = None,
) -> Simulated:
    """Play everything.

    `on_progress` hears how many of how many schedules are played, `on_story` of each with the first seed.
    """
    played: list[Played] = []
    todo = len(spec.seeds) * len(spec.setups)
    for setup, seed in _cells(spec):
        scenario, story = play(spec, setup, seed, audit=audit)
        outages = scenario.faults.outages(scenario.resources)
        accounts = accounts_of(story, scenario.jobs, scenario.resources, outages=outages)
        played.append(Played(setup.name, seed, accounts))
        if on_story is not None and seed == spec.seeds[0]:
            on_story(setup.name, scenario, story)
        if on_progress is not None:
            on_progress(len(played), todo)
    outcomes = tuple(outcome_of(setup, [p.accounts for p in played if p.setup == setup.name]) for setup in spec.setups)
    return Simulated(spec.name, spec.description, len(spec.seeds), outcomes, tuple(played))


def again(recorded: Recorded) -> list[Setup]:
    """The ways in which the jobs of a recording can be scheduled again: all policies that waive nothing."""
    bundling = recorded.header.bundling
    return [Setup(name, bundling=bundling) for name, kind in POLICIES.items() if not kind.overbooks]


def simulate_recorded(
    recorded: Recorded,
    *,
    setups: Sequence[Setup],
    audit: bool = False,
    on_story: Callable[[str, Scenario, ScheduleHistory], None] | None = None,
) -> Simulated:
    """What a recorded schedule was worth, and what other policies would have made of the same stages.

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
    stories = [(was, traced.story), *((setup, _play(scenario, setup, audit=audit)) for setup in setups)]
    played: list[Played] = []
    outcomes: list[SimulationOutcome] = []
    for setup, story in stories:
        accounts = accounts_of(story, scenario.jobs, scenario.resources, chains=False)
        played.append(Played(setup.name, 0, accounts))
        outcomes.append(outcome_of(setup, [accounts]))
        if on_story is not None:
            on_story(setup.name, scenario, story)
    names = ", ".join(dict.fromkeys(header.names.values()))
    return Simulated(recorded.path, names, 1, tuple(outcomes), tuple(played))


def _play(scenario: Scenario, setup: Setup, *, audit: bool) -> ScheduleHistory:
    auditor = Auditor(POLICIES[setup.policy].overbooks, POLICIES[setup.policy].starvation_free) if audit else None
    world = World(
        setup.machine(),
        scenario.resources,
        scenario.jobs,
        interference=setup.interference,
        faults=scenario.faults,
        observe=auditor.observe if auditor else None,
    )
    return world.run()


def _cells(spec: ScheduleSpec) -> Iterator[tuple[Setup, int]]:
    for seed in spec.seeds:
        for setup in spec.setups:
            yield setup, seed
