"""One cell of a matrix: a value for every option, and the methods that compete in it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kintune.core.candidate import digest_of
from kintune_lab.experiment.option import Value

__all__ = ["Cell", "Method"]


class Method(msgspec.Struct, frozen=True):
    """One rival inside a cell.

    `label` is unique in the cell and names it in tables and plots; `values` has every option of the method, those that
    the spec does not set at their default (None: not set).
    """

    name: str
    label: str
    values: dict[str, Value | None] = {}
    changed: dict[str, Value] = {}


class Cell(msgspec.Struct, frozen=True):
    """One piece of work that is done as a whole or not at all.

    `values` has every option of the experiment, `changed` those that are not at their default; `contents` digests the
    files that options name.  What a cell is goes into its `id`, and nothing else does: the order of options, defaults
    written out, the spec's other cells, labels and the `title` that people see are no part of it.
    """

    experiment: str
    version: int
    values: dict[str, Value | None]
    changed: dict[str, Value]
    methods: tuple[Method, ...] = ()
    contents: dict[str, str] = {}
    title: str = ""

    @property
    def id(self) -> str:
        """Twelve hexadecimal digits that name the cell for good."""
        methods = [(method.name, _ordered(method.changed)) for method in self.methods]
        parts = (self.experiment, self.version, _ordered(self.changed), methods, _ordered(self.contents))
        return digest_of(msgspec.json.encode(parts))[:12]


def _ordered(values: Mapping[str, Value]) -> list[tuple[str, Value]]:
    return sorted(values.items())
