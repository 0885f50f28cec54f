"""The relation map of a network's subgraphs, drawn as a picture or as text."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

from kintune.errors import EnvironmentProblem, InputError
from kintune.files import write_whole
from kintune_lab.families.document import FamiliesDocument, Member

__all__ = ["FORMATS", "LEGEND", "check_picture", "draw_picture", "draw_text"]


FORMATS = (".png", ".svg")
"""What a picture's name may end in."""

_CELL = 0.42  # inches
_FIGURES = 24  # members up to which each cell shows its value
_LOWEST = 0.5  # accuracy at the dark end: chance
_BRIGHT = 0.75  # accuracy from which a cell's ground is bright


def check_picture(path: str) -> None:
    """Check that the picture can be drawn.

    Raises:
        InputError: the name does not end in one of `FORMATS`.
        EnvironmentProblem: matplotlib is missing.
    """
    if Path(path).suffix.lower() not in FORMATS:
        raise InputError(f"--picture {path}: must end in {' or '.join(FORMATS)}")
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise EnvironmentProblem('pictures need matplotlib; install it with: pip install "kintune[bench]"') from error


def draw_picture(families: FamiliesDocument, path: Path) -> None:
    """Draw the map to a PNG or SVG file: rows were learnt from, columns ranked, families are framed.

    Needs `families.relation`.

    Raises:
        InputError: the file cannot be written.
    """
    import matplotlib

    settings: dict[str, Any] = {
        "svg.fonttype": "none", "svg.hashsalt": families.model, "font.family": "DejaVu Sans", "text.parse_math": False,
    }  # fmt: skip
    with matplotlib.rc_context(settings):
        figure = _figure(families)
        written = io.BytesIO()
        kind = path.suffix.lower()[1:]
        metadata = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
        figure.savefig(written, format=kind, dpi=150, facecolor="white", bbox_inches="tight", metadata=metadata)
    write_whole(path, written.getvalue())


def _figure(families: FamiliesDocument) -> Any:
    import numpy as np
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    relation = families.relation
    if relation is None:
        raise InputError("there is no relationship map to draw")
    n = len(relation.numbers)
    by_number = {member.number: member for member in families.members}
    members = [by_number[number] for number in relation.numbers]
    values = np.array([[np.nan if v is None else v for v in row] for row in relation.accuracy], dtype=float)
    side = max(2.4, _CELL * n)
    figure = Figure(figsize=(side + 4.6, side + 2.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    image = axes.imshow(values, cmap="cividis", vmin=_LOWEST, vmax=1.0)
    axes.set_yticks(range(n), [_label(member) for member in members], fontsize=9)
    axes.set_xticks(range(n), [str(member.number) for member in members], fontsize=9)
    axes.tick_params(length=0)
    axes.set_xlabel("ranked")
    axes.set_ylabel("learnt from")
    axes.set_title(
        f"{families.model}: how well one subgraph's samples rank another's\nframes: families ({families.algorithm})",
        fontsize=11, loc="left",
    )  # fmt: skip
    if n <= _FIGURES:
        _write_values(axes, values)
    _frame(axes, families, [member.number for member in members])
    bar = figure.colorbar(image, ax=axes, shrink=0.8, extend="min")
    bar.set_label("share of pairs in the right order (0.5: chance)")
    return figure


def _write_values(axes: Any, values: Any) -> None:
    for (row, column), value in _cells(values):
        color = "black" if value >= _BRIGHT else "white"
        axes.text(column, row, f"{100 * value:.0f}", ha="center", va="center", fontsize=7.5, color=color)


def _cells(values: Any) -> list[tuple[tuple[int, int], float]]:
    return [
        ((row, column), float(value))
        for row, line in enumerate(values)
        for column, value in enumerate(line)
        if not math.isnan(value)
    ]


def _frame(axes: Any, families: FamiliesDocument, numbers: list[int]) -> None:
    """A frame around each family, whose members stand side by side."""
    from matplotlib.patches import Rectangle

    for family in families.families:
        places = [numbers.index(member.number) for member in family.members if member.number in numbers]
        if places:
            first, size = min(places) - 0.5, len(places)
            axes.add_patch(
                Rectangle((first, first), size, size, fill=False, edgecolor="white", linewidth=4.0, clip_on=False)
            )
            axes.add_patch(
                Rectangle((first, first), size, size, fill=False, edgecolor="#d55e00", linewidth=2.2, clip_on=False)
            )


def _label(member: Member) -> str:
    return f"{member.operator} {member.loops}  {member.number}"


_SHADES = ((0.85, "██"), (0.75, "▓▓"), (0.65, "▒▒"), (0.55, "░░"), (float("-inf"), " ·"))
_UNKNOWN = "  "

LEGEND = "██ 85 % or more of the pairs in the right order, ▓▓ 75, ▒▒ 65, ░░ 55, · less (chance is 50)"
"""What the shades mean."""


def draw_text(families: FamiliesDocument, width: int = 120) -> list[str]:
    """The map as lines: a row for each member that was learnt from, a column for each that was ranked.

    Families are set apart by lines; rows say less of their member when more would not fit into `width` characters.
    Nothing when there is no map.
    """
    relation = families.relation
    if relation is None:
        return []
    members = {member.number: (index, member) for index, f in enumerate(families.families) for member in f.members}
    homes = [members[number][0] for number in relation.numbers]
    starts = {at for at in range(1, len(homes)) if homes[at] != homes[at - 1]}
    names = {number: _named(members[number][1]) for number in relation.numbers}
    if max(map(len, names.values())) + 1 + len(_row(["  "] * len(homes), starts)) > width:
        names = {number: f"{number:>2} {members[number][1].operator}" for number in relation.numbers}
    head = max(map(len, names.values()))
    lines = [" " * (head + 1) + _row([f"{number:>2}" for number in relation.numbers], starts)]
    for at, (number, row) in enumerate(zip(relation.numbers, relation.accuracy, strict=True)):
        if at in starts:
            lines.append(" " * (head + 1) + _row(["──"] * len(row), starts, "─", "┼"))
        lines.append(f"{names[number]:<{head}} " + _row([_shade(value) for value in row], starts))
    return lines


def _named(member: Member) -> str:
    return f"{member.number:>2} {member.operator} {member.loops}".rstrip()


def _row(cells: list[str], starts: set[int], gap: str = " ", bar: str = "│") -> str:
    return "".join(
        f"{gap}{bar}{gap}{cell}" if at in starts else f"{gap if at else ''}{cell}" for at, cell in enumerate(cells)
    )


def _shade(value: float | None) -> str:
    if value is None:
        return _UNKNOWN
    return next(shade for least, shade in _SHADES if value >= least)
