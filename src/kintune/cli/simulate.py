"""`kintune simulate`: play schedules in virtual time."""

from __future__ import annotations

import re
from pathlib import Path

import click
import msgspec

from kintune.cli.document import JsonTarget, echo, json_option, write_document
from kintune.errors import InputError
from kintune.files import check_writable
from kintune.kinship.picture import check_picture
from kintune.simulate.gantt import draw_gantt
from kintune.simulate.simulation import Outcome, Simulated, play, simulate
from kintune.simulate.spec import Setup, Spec, read_spec
from kintune.terminal.quantities import duration

__all__ = ["command"]


@click.command("simulate", short_help="Play schedules in virtual time.")
@click.argument("spec", metavar="SPEC.toml")
@click.option("--seeds", type=click.IntRange(min=1), help="How many seeds.  [default: as the spec says]")
@click.option("--setup", "labels", multiple=True, metavar="LABEL", help="Play only this setup; may be given again.")
@click.option("--audit", is_flag=True, help="Check every decision against books kept apart; slower.")
@click.option("--picture", metavar="FILE", default="", help="Draw who ran where: a .png or .svg for each setup.")
@click.option("--until", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="Draw the beginning only.")
@json_option
def command(
    spec: str,
    seeds: int | None,
    labels: tuple[str, ...],
    audit: bool,
    picture: str,
    until: float | None,
    json_target: JsonTarget,
) -> None:
    """Play the jobs of SPEC.toml under each of its setups, and compare what comes of it.

    The scheduler is the one that runs tuning jobs; only time is virtual.
    """
    read = _chosen(read_spec(spec), seeds, labels)
    pictures = _pictures(picture, read)
    with click.progressbar(length=len(read.seeds) * len(read.setups), label="playing", file=_stderr()) as bar:
        simulated = simulate(read, audit=audit, on_progress=lambda _done, _all: bar.update(1))
    write_document(json_target, simulated)
    for line in _lines(simulated):
        echo(line, json_target)
    for setup, path in pictures:
        scenario, story = play(read, setup, read.seeds[0], audit=False)
        title = f"{read.name}: {setup.name}"
        draw_gantt(title, story, scenario.resources, path, until)
        echo(f"The picture of {setup.name} is {path}", json_target)


def _stderr() -> object:
    return click.get_text_stream("stderr")


def _chosen(spec: Spec, seeds: int | None, labels: tuple[str, ...]) -> Spec:
    for label in labels:
        if label not in [setup.name for setup in spec.setups]:
            known = ", ".join(repr(setup.name) for setup in spec.setups)
            raise InputError(f"--setup {label}: there is no such setup in {spec.name}; there are {known}")
    setups = tuple(setup for setup in spec.setups if not labels or setup.name in labels)
    return msgspec.structs.replace(spec, setups=setups, seeds=spec.seeds if seeds is None else tuple(range(seeds)))


def _pictures(picture: str, spec: Spec) -> list[tuple[Setup, Path]]:
    if not picture:
        return []
    check_picture(picture)
    path = Path(picture)
    paths = [
        (setup, path if len(spec.setups) == 1 else path.with_stem(f"{path.stem}-{_slug(setup.name)}"))
        for setup in spec.setups
    ]
    for _, each in paths:
        check_writable(str(each), "--picture")
    return paths


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _lines(simulated: Simulated) -> list[str]:
    many = f"median of {simulated.seeds} seeds" if simulated.seeds > 1 else "one seed"
    lines = [f"{simulated.name}: {simulated.description}".rstrip(": "), f"({many}; use is the mean over hosts and devices)"]
    measured = any(outcome.measured_s is not None for outcome in simulated.outcomes)
    head = ["setup", "all done", "over bound", "worst", "mean job", "hosts", "devices", "longest wait", "share", "fairness"]
    if measured:
        head += ["measured", "difference"]
    rows = [head, *(_row(outcome, measured) for outcome in simulated.outcomes)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(head))]
    for row in rows:
        first, *others = (cell.ljust(w) if at == 0 else cell.rjust(w) for at, (cell, w) in enumerate(zip(row, widths, strict=True)))
        lines.append("  ".join([first, *others]).rstrip())
    return lines


def _row(outcome: Outcome, measured: bool) -> list[str]:
    row = [
        outcome.setup,
        duration(outcome.makespan_s),
        f"{outcome.over_bound:.3f}",
        f"{outcome.over_bound_worst:.3f}",
        duration(outcome.mean_completion_s),
        f"{100 * outcome.hosts_use:.0f} %",
        f"{100 * outcome.devices_use:.0f} %",
        duration(outcome.worst_wait_s),
        f"{outcome.worst_share:.2f}",
        f"{outcome.fairness:.2f}",
    ]
    if measured and outcome.measured_s is not None:
        row += [duration(outcome.measured_s), f"{100 * (outcome.makespan_s / outcome.measured_s - 1):+.0f} %"]
    elif measured:
        row += ["", ""]
    return row
