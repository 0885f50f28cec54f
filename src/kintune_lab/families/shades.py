"""The relationship map in characters: each pair a shade, darker where the one's samples rank the other's better."""

from __future__ import annotations

from kintune_lab.families.document import FamiliesDocument, Member

__all__ = ["LEGEND", "shaded"]

_SHADES = ((0.85, "██"), (0.75, "▓▓"), (0.65, "▒▒"), (0.55, "░░"), (float("-inf"), " ·"))
_UNKNOWN = "  "

LEGEND = "██ 85 % or more of the pairs in the right order, ▓▓ 75, ▒▒ 65, ░░ 55, · less (chance is 50)"
"""What the shades mean."""


def shaded(families: FamiliesDocument, width: int = 120) -> list[str]:
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
