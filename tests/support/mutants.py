"""Kernels with one thing wrong, for tests that say whether a wrong program is found out.

A kernel is changed in its text: compilers' programs are wrong in just such small ways.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import tvm

__all__ = ["MUTATIONS", "mutant"]

_GRID = re.compile(
    r"in T\.grid\((?P<extents>[^\n]*)\):\n\s+with T\.sblock\([^\n]*\n[^\n]*axis\.remap\(\"(?P<kinds>[SR]+)\""
)
_STORE = re.compile(r"^(?P<head>\s+\w+\[[^\]=]*\] = )(?P<value>.*)$", re.MULTILINE)
_LOAD = re.compile(r"(\w+)\[([^\[\]]*)\]")


def _shorter(text: str, kind: str) -> str | None:
    """The last grid that has a loop of this kind ("S" or "R") with its innermost such loop one short."""
    for grid in reversed(list(_GRID.finditer(text))):
        extents = grid["extents"].split(", ")
        loops = [i for i, k in enumerate(grid["kinds"]) if k == kind and extents[i] != "T.int64(1)"]
        if loops:
            extents[loops[-1]] += " - T.int64(1)"
            return text[: grid.start("extents")] + ", ".join(extents) + text[grid.end("extents") :]
    return None


def _tail(text: str) -> str | None:
    return _shorter(text, "S")


def _reduction(text: str) -> str | None:
    return _shorter(text, "R")


def _index(text: str) -> str | None:
    """The last load by two or more indices reads the neighbour along the first that is a variable."""
    for store in reversed(list(_STORE.finditer(text))):
        loads = [load for load in _LOAD.finditer(store["value"]) if re.search(r"\bv_\w+", load[2])]
        if loads:
            at = store.start("value") + loads[0].start(2)
            variables = re.findall(r"\bv_\w+", loads[0][2])
            place = loads[0][2].rindex(variables[-1]) + at
            variable = variables[-1]
            shifted = f"T.max({variable} - T.int64(1), T.int64(0))"
            return text[:place] + shifted + text[place + len(variable) :]
    return None


def _epilogue(text: str) -> str | None:
    """The last store that computes from a load stores what it has loaded."""
    for store in reversed(list(_STORE.finditer(text))):
        load = _LOAD.search(store["value"])
        if load is None or _is_cast(store["value"], load[0]):
            continue
        if load[0] != store["value"].strip() and load[0] not in store["head"]:
            return text[: store.start("value")] + load[0] + text[store.end("value") :]
    return None


def _is_cast(value: str, load: str) -> bool:
    """Whether the value is what is loaded, in another type: a store converts it anyhow."""
    return value.strip().startswith("T.Cast(") and value.strip().endswith(f", {load})")


def _operand(text: str) -> str | None:
    """The last product or sum of two loads takes the first one twice."""
    for store in reversed(list(_STORE.finditer(text))):
        loads = [load for load in _LOAD.finditer(store["value"]) if load[0] not in store["head"]]
        names = {load[1] for load in loads}
        if len(names) > 1:
            first, second = loads[0], next(load for load in loads if load[1] != loads[0][1])
            start = store.start("value")
            return text[: start + second.start()] + first[0] + text[start + second.end() :]
    return None


MUTATIONS: Mapping[str, Callable[[str], str | None]] = {
    "an index off by one": _index,
    "a dropped epilogue": _epilogue,
    "a wrong operand": _operand,
    "a tail not written": _tail,
    "a reduction one short": _reduction,
}
"""What can be done to a kernel's text; None where there is nothing to do it to."""


def mutant(function: Any, mutation: str) -> Any | None:
    """The kernel with this one thing wrong, or None where it cannot be, or is no program any more."""
    changed = MUTATIONS[mutation](function.script(show_meta=False))
    if changed is None:
        return None
    from tvm.script import tirx  # its name is not that of a module, which the parser's own defaults take it for

    try:
        kernel = tvm.script.from_source(changed, extra_vars={"T": tirx})
    except tvm.error.DiagnosticError:  # as where an operand of another type is taken
        return None
    return kernel.with_attr(dict(function.attrs.items())) if function.attrs is not None else kernel
