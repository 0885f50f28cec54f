"""How a sum of products lies in panels and rows, as an inner kernel reads them."""

from __future__ import annotations

from typing import NamedTuple

from kintune.compiler.programs.panel_text import CHUNK
from kintune.compiler.programs.weighted_sum import WeightedSum

__all__ = ["AMX", "DOT", "FMA", "Form", "Inner", "Tiling", "form_of"]

AMX, DOT, FMA = "amx", "dot", "fma"
"""Kinds of inner kernels: tiles of bf16, vectors of pairs of bf16 (`vdpbf16ps`), vectors of fp32."""


class Inner(NamedTuple):
    """An inner kernel: its `kind`, the rows that it computes at once (for tiles, of one tile), the columns of a panel,
    and the text with its functions.
    """

    kind: str
    rows: int
    columns: int
    text: str

    @property
    def is_narrow(self) -> bool:
        """Whether it multiplies bf16."""
        return self.kind != FMA

    @property
    def step(self) -> int:
        """The values that a sum is cut into; each run is filled up to a multiple of it."""
        return CHUNK if self.is_narrow else 1

    @property
    def size(self) -> int:
        """Bytes of a value."""
        return 2 if self.is_narrow else 4

    @property
    def stored(self) -> str:
        """The type of packed weights."""
        return "bfloat16" if self.is_narrow else "float32"

    def panel_shape(self, form: Form) -> tuple[int, ...]:
        """The shape of the packed weights: of bf16, two neighbours of a sum lie side by side."""
        values = form.steps * self.step
        if not self.is_narrow:
            return form.panels, values, self.columns
        return form.panels, values // 2, self.columns, 2


class Tiling(NamedTuple):
    """A task has `units` times the rows of the inner kernel, and one of `parts` of the panels; the sum is computed in
    `depth` parts.
    """

    units: int
    parts: int
    depth: int


class Form(NamedTuple):
    """A sum as the inner kernel reads it: `runs` of `values` each, in `chunks` steps; `panels` of columns.

    `rows` are those of an image, or of all of them where each row is read from one place of the data.
    """

    images: int
    rows: int
    panels: int
    runs: int
    values: int
    chunks: int

    @property
    def steps(self) -> int:
        """Steps in the sum of a row."""
        return self.runs * self.chunks


def form_of(found: WeightedSum, inner: Inner) -> Form:
    """The form of a sum."""
    images, rows = found.images, found.positions // found.images
    if found.is_direct:
        images, rows = 1, found.positions
    whole = found.columns.dilation == 1
    values = found.channels * (found.columns.kernel if whole else 1)
    runs = found.rows.kernel * (1 if whole else found.columns.kernel)
    return Form(images, rows, -(-found.filters // inner.columns), runs, values, -(-values // inner.step))
