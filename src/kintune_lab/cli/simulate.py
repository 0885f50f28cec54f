"""`kintune simulate`: play schedules in virtual time."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from kintune.cli.document import JsonTarget, echo, json_option, write_document
from kintune.cli.finite_range import FiniteRange
from kintune.cli.widths import output_width
from kintune.errors import InputError
from kintune.files import check_writable
from kintune.terminal.formatting import duration
from kintune.terminal.table import Column, table_lines
from kintune_lab.families.relation_map import check_picture
from kintune_lab.simulate.gantt import draw_gantt
from kintune_lab.simulate.history import Ending, ScheduleHistory
from kintune_lab.simulate.live import simulate_live
from kintune_lab.simulate.metrics import Simulated, SimulationOutcome
from kintune_lab.simulate.recorded import read_recording
from kintune_lab.simulate.simulation import again, simulate, simulate_recorded
from kintune_lab.simulate.spec import Scenario, Setup, read_schedule_spec

__all__ = ["command"]

_COLUMNS = (
    Column("setup", yields=True),
    Column("all done", right=True),
    *(Column(title, right=True, optional=True) for title in ("over bound", "worst", "mean job", "hosts", "devices")),
    *(Column(title, right=True, optional=True) for title in ("wait for hosts", "for devices", "longest wait")),
    *(Column(title, right=True, optional=True) for title in ("share", "fairness")),
)
_MEASURED_COLUMNS = (Column("measured", right=True), Column("difference", right=True))


@click.command("simulate", short_help="Simulate schedules in virtual time.")
@click.argument("source", metavar="SPEC.toml|SCHEDULE.jsonl")
@click.option("--seeds", type=click.IntRange(min=1), help="Number of seeds.  [default: as in the spec]")
@click.option("--setup", "labels", multiple=True, metavar="LABEL", help="Simulate only this setup; can be repeated.")
@click.option("--audit", is_flag=True, help="Check every decision against independent bookkeeping; slower.")
@click.option("--picture", metavar="FILE", default="", help="Draw a Gantt chart: a .png or .svg for each setup.")
@click.option("--until", type=FiniteRange(min=0, min_open=True), metavar="SECONDS", help="End of the chart in seconds.")
@click.option("--live", is_flag=True, help="Also run real processes that sleep.")
@click.option("--speed", type=FiniteRange(min=0, min_open=True), help="Speed-up of --live.")
@json_option
def command(
    source: str,
    seeds: int | None,
    labels: tuple[str, ...],
    audit: bool,
    picture: str,
    until: float | None,
    live: bool,
    speed: float | None,
    json_target: JsonTarget,
) -> None:
    """Simulate the jobs of SPEC.toml under each of its setups, and compare the results.

    The scheduler is the one that runs tuning jobs; only time is virtual.  SCHEDULE.jsonl is what 'kintune tune
    --schedule' has recorded: its stages are played under other policies as well.
    """
    if picture:
        check_picture(picture)
        check_writable(picture, "--picture", stream=True)
    drawn: list[str] = []

    def draw(name: str, scenario: Scenario, history: ScheduleHistory) -> None:
        if picture:
            path = Path(picture) if alone else Path(picture).with_stem(f"{Path(picture).stem}-{_slug(name)}")
            draw_gantt(f"{title}: {name}", history, scenario.resources, path, until)
            drawn.append(f"The picture of {name} is {path}")

    if until is not None and not picture:
        raise InputError("--until is the end of a chart; name its file with --picture")
    if speed is not None and not live:
        raise InputError("--speed is for --live; virtual time has none")
    if live and audit:
        raise InputError("--audit checks simulated schedules; leave it or --live out")
    if live and seeds is not None and seeds > 1:
        raise InputError(f"--seeds {seeds}: --live plays one seed; leave one of them out")
    if source.endswith(".jsonl"):
        if live:
            raise InputError("--live runs specs only, not recordings")
        if seeds is not None:
            raise InputError(f"--seeds {seeds}: nothing is drawn in a recording; leave it out")
        recorded = read_recording(source)
        setups = _chosen(again(recorded), labels, source)
        alone, title = False, ", ".join(dict.fromkeys(recorded.header.names.values()))
        simulated = simulate_recorded(recorded, setups=setups, audit=audit, on_history=draw)
    else:
        spec = read_schedule_spec(source)
        setups = _chosen(spec.setups, labels, spec.name)
        spec = msgspec.structs.replace(
            spec, setups=tuple(setups), seeds=spec.seeds if seeds is None else tuple(range(seeds))
        )
        alone, title = len(setups) == 1 and not live, spec.name
        todo = len(setups) * (1 if live else len(spec.seeds))
        with click.progressbar(length=todo, label="playing", file=sys.stderr) as bar:

            def advance(_done: int, _all: int) -> None:
                bar.update(1)

            if live:
                simulated = simulate_live(spec, speed=speed or 1.0, on_progress=advance, on_history=draw)
            else:
                simulated = simulate(spec, audit=audit, on_progress=advance, on_history=draw)
    write_document(json_target, simulated)
    for line in (*_lines(simulated), *drawn):
        echo(line, json_target)


def _chosen(setups: Sequence[Setup], labels: tuple[str, ...], of: str) -> list[Setup]:
    for label in labels:
        if label not in [setup.name for setup in setups]:
            known = ", ".join(repr(setup.name) for setup in setups)
            raise InputError(f"--setup {label}: there is no such setup in {of}; there are {known}")
    return [setup for setup in setups if not labels or setup.name in labels]


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _lines(simulated: Simulated) -> list[str]:
    many = f"median of {simulated.seeds} seeds" if simulated.seeds > 1 else "one seed"
    lines = [
        f"{simulated.name}: {simulated.description}".rstrip(": "),
        f"({many}; use is the mean over hosts and devices, waits are the sums over all stages)",
    ]
    measured = any(outcome.measured_s is not None for outcome in simulated.outcomes)
    columns = [*_COLUMNS, *(_MEASURED_COLUMNS if measured else ())]
    rows = [_row(outcome, measured) for outcome in simulated.outcomes]
    return [*lines, *table_lines(columns, rows, output_width()), *_not_done(simulated)]


def _not_done(simulated: Simulated) -> list[str]:
    """A line for each setup under which jobs failed or were cancelled, over all seeds."""
    lines = []
    for setup in dict.fromkeys(played.setup for played in simulated.played):
        endings = sum((Counter(p.accounts.endings) for p in simulated.played if p.setup == setup), Counter[str]())
        others = [f"{count} {ending}" for ending, count in sorted(endings.items()) if ending != Ending.DONE.value]
        if others:
            lines.append(
                f"Of {endings.total()} jobs under {setup}: {', '.join(others)}; their ends are no part of 'mean job'"
            )
    return lines


def _row(outcome: SimulationOutcome, measured: bool) -> list[str]:
    row = [
        outcome.setup,
        duration(outcome.makespan_s),
        f"{outcome.over_bound:.3f}",
        f"{outcome.over_bound_worst:.3f}",
        duration(outcome.mean_completion_s),
        f"{100 * outcome.hosts_use:.0f} %",
        f"{100 * outcome.devices_use:.0f} %",
        duration(outcome.host_wait_s),
        duration(outcome.device_wait_s),
        duration(outcome.worst_wait_s),
        f"{outcome.worst_share:.2f}",
        f"{outcome.fairness:.2f}",
    ]
    if measured and outcome.measured_s is not None:
        row += [duration(outcome.measured_s), f"{100 * (outcome.makespan_s / outcome.measured_s - 1):+.0f} %"]
    elif measured:
        row += ["", ""]
    return row
