"""`kintune families`: show which subgraphs of a model learn together."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import click

from kintune import api
from kintune.cli.document import JsonTarget, echo, json_option, write_document
from kintune.cli.options import constant_option, records_option, shape_option
from kintune.cli.widths import output_width
from kintune.errors import InputError
from kintune.files import check_writable
from kintune.search.family import algorithms
from kintune.terminal.formatting import count
from kintune.terminal.table import shortened
from kintune_lab.families.document import FamiliesDocument, Member
from kintune_lab.families.inquiry import inquire
from kintune_lab.families.relation_map import LEGEND, check_picture, draw_picture, draw_text
from kintune_lab.families.samples import LEAST_SAMPLES

__all__ = ["command"]


@click.command("families", short_help="Show which subgraphs share a cost model.")
@click.argument("model")
@shape_option
@constant_option
@click.option("--target", default="native", show_default=True, help="What to tune for; 'native' is this machine.")
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    help="Threads that the model will run on.  [default: all physical cores]",
)
@click.option(
    "--families",
    "algorithm",
    type=click.Choice(algorithms()),
    default="op",
    show_default=True,
    help="How subgraphs are grouped: by core operator, by all operators, each alone, all together, or by samples.",
)
@records_option
@click.option("--picture", metavar="FILE", default="", help="Draw the relationship map to a .png or .svg file.")
@json_option
def command(
    model: str,
    shapes: tuple[str, ...],
    constants: tuple[str, ...],
    target: str,
    threads: int | None,
    algorithm: str,
    records: str | None,
    picture: str,
    json_target: JsonTarget,
) -> None:
    """Show the families of MODEL's subgraphs; if the records have samples, also how well they rank each other.

    Each family shares one cost model.  The relationship map needs measured programs: it shows of each two subgraphs
    how well a model that has learnt from the one ranks the programs of the other.
    """
    if picture:
        check_picture(picture)
        check_writable(picture, "--picture", stream=True)
    families = inquire(
        api.Model.parse(model, shapes, constants).ref,
        algorithm,
        target=target,
        threads=threads,
        records=records,
        on_wait=lambda holder: click.echo(f"waiting for the cores, held by process {holder}", err=True),
    )
    given = {
        "--shape": shapes,
        "--constant": constants,
        "--target": () if target == "native" else (target,),
        "--threads": () if threads is None else (str(threads),),
        "--records": () if records is None else (records,),
    }
    words = [word for option, values in given.items() for value in values for word in (option, value)]
    tune = shlex.join(["kintune", "tune", model, *words])
    if picture and families.relation is None:
        raise InputError(f"--picture: {_missing(families, tune)}")
    write_document(json_target, families)
    for line in _lines(families, tune):
        echo(line, json_target)
    if picture:
        draw_picture(families, Path(picture))
        echo(f"The picture is {picture}", json_target)


def _lines(families: FamiliesDocument, tune: str) -> list[str]:
    groups = len(families.families)
    lines = [
        f"{families.model}: {families.subgraphs} distinct subgraphs, {families.tunable} of them worth tuning, in "
        f"{groups} {'family' if groups == 1 else 'families'} ({families.algorithm})",
    ]
    lines += _table(families)
    lines.append("")
    if families.relation is None:
        return [*lines, f"No relationship map: {_missing(families, tune)}"]
    return [
        *lines,
        f"How well the samples of one (row) rank those of another (column); {families.samples} samples, "
        f"measured on {families.measured_on}",
        *draw_text(families, shutil.get_terminal_size((120, 24)).columns),
        LEGEND,
    ]


def _table(families: FamiliesDocument) -> list[str]:
    """The families, each under a line of its own, with columns that run through all of them."""
    cells = {member.number: _cells(member) for member in families.members}
    widths = [max((len(row[at]) for row in cells.values()), default=0) for at in range(5)]
    lines = []
    for family in families.families:
        n = len(family.members)
        many = f"{n} subgraph{'s' if n > 1 else ''}, {100 * family.share:.1f} % of the operations"
        lines += ["", f"{family.key}: {many}"]
        for member in family.members:
            number, loops, *figures = cells[member.number]
            said = [f"{number:>{widths[0]}}", f"{loops:<{widths[1]}}"]
            said += [f"{figure:>{width}}" for figure, width in zip(figures, widths[2:], strict=True) if width]
            lines.append("  " + "  ".join([*said, member.signature]))
    width = output_width()
    return lines if width is None else [shortened(line, width) for line in lines]


def _cells(member: Member) -> tuple[str, ...]:
    described = f"{member.operator} {member.loops}".strip()
    samples = f"{member.samples} samples" if member.samples else ""
    return str(member.number), described, f"{member.weight}x", count(member.flops, "FLOP"), samples


def _missing(families: FamiliesDocument, tune: str) -> str:
    """Why there is no map, and what to do about it: the command `tune`, of the same model."""
    enough = sum(member.samples >= LEAST_SAMPLES for member in families.members)
    trials = 4 * LEAST_SAMPLES * max(1, families.tunable)
    said = f"{enough} of {families.tunable} subgraphs have" if enough else "no subgraph has"
    return f"{said} {LEAST_SAMPLES} measured programs or more; measure them with: {tune} --trials {trials}"
