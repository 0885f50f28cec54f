"""Writes what operators declare, and what the run of ONNX's suite told: a list of refused cases, and `docs/models.md`.

As a program: `python -m tests.support.models_page` runs the suite and writes all; with `--declared` it writes only what
operators declare.
"""

from __future__ import annotations

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from onnx import defs

from tests.support.onnx_suite import REFUSED, RIGHT, Verdict, run_suite, written_suite

__all__ = [
    "LIST",
    "PAGE",
    "contradictions",
    "declared_part",
    "read_list",
    "refused_list",
    "table_of",
    "with_declared",
    "written_table",
]

if TYPE_CHECKING:
    from kintune.models.converters.registration import OnnxOperator

ROOT = Path(__file__).parents[2]
LIST = ROOT / "tests/models/onnx_suite_refused.txt"
PAGE = ROOT / "docs/models.md"

BEGIN = "<!-- from here on written by: python -m tests.support.models_page -->"

DECLARED = "<!-- declared by converters, written by: python -m tests.support.models_page --declared -->\n"
DECLARED_END = "<!-- end of what converters declare -->\n"

_MISSING = re.compile(r"operators that cannot be imported: (.*); replace them")
_ITEM = re.compile(r"(\S+) x\d+(?: \((.*?)\))?(?:, |$)")
_AT_NODE = re.compile(r"operator (\S+) \(node (.*?)\)")
_HEAD = "# Cases of ONNX's backend suite that are refused, and why.  Written by: python -m tests.support.models_page\n"


def refused_list(verdicts: Mapping[str, Verdict]) -> str:
    """The text of the list: a line for each refused case."""
    return _HEAD + "".join(
        f"{name}: {verdict.reason}\n" for name, verdict in sorted(verdicts.items()) if verdict.kind == REFUSED
    )


def read_list(text: str) -> dict[str, str]:
    """The refused cases and their reasons, from such a text."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {name: reason for name, _, reason in (line.partition(": ") for line in lines)}


def table_of(verdicts: Mapping[str, Verdict]) -> str:
    """The generated part of the page: counts, then a row for each operator."""
    kinds = Counter(verdict.kind for verdict in verdicts.values())
    right: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    reasons: dict[str, Counter[str]] = defaultdict(Counter)
    opsets: dict[str, set[int]] = defaultdict(set)
    fixed: dict[str, set[str]] = defaultdict(set)
    for verdict in verdicts.values():
        for operator in verdict.operators:
            opsets[operator].add(verdict.opset)
        if verdict.kind == RIGHT:
            right.update(verdict.operators)
            for what in verdict.constants:
                name, _, operator = what.partition(" of ")
                fixed[operator].add(name)
        elif verdict.kind == REFUSED:
            for operator in _blamed(verdict):
                refused[operator] += 1
                reasons[operator][_reason(verdict)] += 1
    rows = [
        f"| {operator} | {right[operator] or ''} | {refused[operator] or ''} | {_several(reasons[operator])} "
        f"| {_ranges(opsets[operator])} | {', '.join(f'`{name}`' for name in sorted(fixed[operator]))} |"
        for operator in sorted(opsets, key=lambda name: ("::" in name, name.lower()))
        if right[operator] or refused[operator]
    ]
    counts = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    return (
        f"{BEGIN}\n\nOf {len(verdicts)} cases: {counts}.\n\n"
        "| operator | cases right | refused | why refused | opsets tried | inputs that must be constants |\n"
        "|---|---|---|---|---|---|\n" + "\n".join(rows) + "\n"
    )


def declared_part(operators: Iterable[OnnxOperator]) -> str:
    """What operators declare: the names of those of onnxruntime's own set, and a table of what they do not take."""
    ordered = sorted(operators, key=lambda each: (each.domain, each.name.lower(), each.since))
    own = ", ".join(each.name for each in ordered if each.domain)
    rows = []
    for each in ordered:
        name = f"{each.domain}::{each.name}" if each.domain else each.name
        since = f" from opset {each.since} on" if each.since > 1 else ""
        newest = not any(
            more.since > each.since and (more.domain, more.name) == (each.domain, each.name) for more in ordered
        )
        constants = ", ".join(f"`{_input(each, newest, index)}`" for index in each.constants)
        types = "; ".join(f"`{_input(each, newest, index)}`: {', '.join(types)}" for index, types in each.types.items())
        reasons = [each.convert] if isinstance(each.convert, str) else []
        reasons += dict.fromkeys(each.refused.values())
        if constants or types or reasons:
            rows.append(f"| {name}{since} | {constants} | {types} | {'; '.join(reasons)} |\n")
    return (
        f"{DECLARED}\nOf onnxruntime's own set: {own}.\n\nOperators that do not take all that ONNX allows:\n\n"
        "| operator | inputs that must be constants | element types of inputs | refused, if not constant |\n"
        f"|---|---|---|---|\n{''.join(rows)}\n{DECLARED_END}"
    )


def _input(operator: OnnxOperator, newest: bool, index: int) -> str:
    """What the newest version of the standard calls an input; what messages call it where that does not tell it."""
    if newest and not operator.domain and defs.has(operator.name):
        return str(defs.get_schema(operator.name).inputs[index].name)
    return operator.constants.get(index, f"input {index}")


def with_declared(page: str, operators: Iterable[OnnxOperator]) -> str:
    """The page with what operators declare in its place."""
    before, after = page.split(DECLARED)[0], page.split(DECLARED_END)[1]
    return before + declared_part(operators) + after


def written_table(page: str) -> str:
    """The generated part of a page that was written before."""
    return page[page.index(BEGIN) :]


def contradictions(page: str, verdicts: Mapping[str, Verdict]) -> list[str]:
    """What the page cannot have from a run in which these cases went so, in words.

    An operator of the page must be among them.
    """
    found = set(_rows(table_of(verdicts)).items())
    written = _rows(written_table(page))
    tried = {operator for verdict in verdicts.values() for operator in verdict.operators}
    words = [f"{operator}: in none of these cases" for operator in written.keys() - tried]
    for operator, row in found:
        theirs = written.get(operator)
        if theirs is None:
            words.append(f"{operator}: not on the page")
            continue
        if row.right > theirs.right or row.refused > theirs.refused:
            words.append(f"{operator}: {row.right} right and {row.refused} refused, on the page fewer")
        lacking = (row.reasons | row.opsets | row.constants) - (theirs.reasons | theirs.opsets | theirs.constants)
        words += [f"{operator}: not on the page: {each}" for each in sorted(lacking)]
    return sorted(words)


class _Row(NamedTuple):
    """What a row of the table says of an operator."""

    right: int
    refused: int
    reasons: frozenset[str]
    opsets: frozenset[str]
    constants: frozenset[str]


def _rows(table: str) -> dict[str, _Row]:
    """The rows of a table by operator."""
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("| ")]
    return {
        name: _Row(
            int(right or 0),
            int(refused or 0),
            frozenset(filter(None, reasons.split("; "))),
            frozenset(f"opset {number}" for number in _numbers(opsets)),
            frozenset(filter(None, constants.split(", "))),
        )
        for name, right, refused, reasons, opsets, constants in cells[1:]
    }


def _numbers(ranges: str) -> Iterator[int]:
    """The numbers of such ranges as "9, 11 to 13"."""
    for each in filter(None, ranges.split(", ")):
        first, _, last = each.partition(" to ")
        yield from range(int(first), int(last or first) + 1)


def _blamed(verdict: Verdict) -> set[str]:
    """The operators because of which a case was refused; all that it has, where nothing more is known."""
    if missing := _MISSING.search(verdict.reason):
        return {name for name, _ in _ITEM.findall(missing[1])}
    if (node := _AT_NODE.search(verdict.reason)) and node[1] in verdict.operators:
        return {node[1]}
    return set(verdict.operators)


def _reason(verdict: Verdict) -> str:
    """A reason without what only this case has."""
    if missing := _MISSING.search(verdict.reason):
        return _ITEM.search(missing[1])[2] or "no form is compiled"  # type: ignore[index]
    text = _AT_NODE.sub("", verdict.reason).strip()
    text = re.sub(r"^(cannot be imported: )", "", text)
    return re.sub(r"\d+", "N", text).replace("|", "/")


def _several(reasons: Counter[str]) -> str:
    return "; ".join(f"{reason}" for reason, _ in sorted(reasons.items(), key=lambda item: (-item[1], item[0])))


def _ranges(numbers: set[int]) -> str:
    """Numbers as ranges of neighbours, as in "9, 11 to 13"."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)


def write(verdicts: Mapping[str, Verdict]) -> None:
    """Write both files."""
    LIST.write_text(refused_list(verdicts))
    page = PAGE.read_text()
    PAGE.write_text(page[: page.index(BEGIN)] + table_of(verdicts))


if __name__ == "__main__":
    from kintune.models.converters.library import operators

    PAGE.write_text(with_declared(PAGE.read_text(), operators()))
    if "--declared" not in sys.argv:
        with written_suite() as suite:
            write(run_suite(suite))
