"""How a sum of products lies in panels and rows, as an inner kernel reads them."""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple

from kintune.compiler.kernels.contraction import Contraction
from kintune.compiler.kernels.copies import CHUNK
from kintune.compiler.kernels.images import Image
from kintune.compiler.kernels.instructions import PAIRS, Instruction
from kintune.compiler.kernels.microkernel import WHOLE, Kernel, Segments
from kintune.compiler.kernels.rows import Lines

__all__ = ["SIZE", "Form", "Inner", "Kept", "Tiling", "Way", "form_of"]

_MOST_SPREAD = 1.4  # times as many rows, so that none has to be copied

SIZE = 2
"""Bytes of a value."""

_INSTRUCTIONS = {each.variant: each for each in PAIRS}

_COPY_TILES, _COPY_VECTORS = 400.0, 50.0
"""The filters for which tiles, or vectors, compute a row in about the time in which its values are copied twice."""


class Inner(NamedTuple):
    """An inner kernel: its `kind` (the variant of its instruction), the rows that it computes at once (of one tile, for
    tiles), and the columns of a panel.
    """

    kind: str
    rows: int
    columns: int

    @property
    def instruction(self) -> Instruction:
        """The instruction that it multiplies by."""
        return _INSTRUCTIONS[self.kind]

    @property
    def steps(self) -> int:
        """The steps of the kernel for `CHUNK` values."""
        return 1 if self.instruction.tiles else CHUNK // self.instruction.step

    def kernel(
        self, units: int, steps: int, pitch: int, segments: Segments = WHOLE, *, adds: bool = False, lines: int = 0
    ) -> Kernel:
        """The kernel for so many units of rows, which are `pitch` bytes apart; only tiles have several units.

        A segment has so many times `CHUNK` values.
        """
        rows, words = (units, CHUNK // 2) if self.instruction.tiles else (self.rows, 1)
        vectors = self.columns // self.instruction.lanes
        return Kernel(
            self.instruction, rows, vectors, steps * self.steps, segments=segments, pitch=pitch, adds=adds, words=words,
            joined=True, lines=lines,
        )  # fmt: skip

    def panel_shape(self, form: Form) -> tuple[int, ...]:
        """The shape of the packed weights, in which two neighbours of a sum lie side by side."""
        return form.panels, form.steps * CHUNK // 2, self.columns, 2


class Tiling(NamedTuple):
    """A task has `units` times the rows of the inner kernel, and one of `parts` of the panels; the sum is computed in
    `depth` parts.
    """

    units: int
    parts: int
    depth: int


class Kept(NamedTuple):
    """Which tensors of a sum lie in memory in bf16: its data, what is stored, and buffers that are read with the sums.

    Others have the type of the workload.
    """

    data: bool = False
    result: bool = False
    operands: tuple[Any, ...] = ()


class Way(str, Enum):
    """How the inner kernel gets the rows of a sum."""

    DIRECT = "direct"
    """Each is read from one place of the data."""

    IMAGE = "image"
    """The inner kernel reads them from the image; between the results of two lines there are rows of no use."""

    GATHERED = "gathered"
    """The values of each row are copied together from the image."""


class Form(NamedTuple):
    """A sum as the inner kernel reads it: `runs` of `values` each, in `chunks` steps; `panels` of columns.

    A run is `pieces` of equal size that lie apart in the data, one for each row of the kernel if it is more than one.
    There are `rows` in each of the `images`; where the way is direct, all are of one image.
    """

    way: Way
    image: Image
    images: int
    rows: int
    panels: int
    runs: int
    values: int
    chunks: int
    pieces: int = 1

    @property
    def steps(self) -> int:
        """Steps in the sum of a row."""
        return self.runs * self.chunks


def form_of(found: Contraction, inner: Inner) -> Form:
    """The form of a sum."""
    y, x = found.rows, found.columns
    image = Image.of(found, whole=found.is_direct)
    values, runs = image.segment, image.values // image.segment
    chunks, panels = -(-values // CHUNK), -(-found.filters // inner.columns)
    if found.is_direct:
        return Form(Way.DIRECT, image, 1, found.positions, panels, runs, values, chunks)
    rows, spread = x.results * y.results, Lines.of_images(image).length
    in_place = y.stride == x.stride == x.dilation == 1 and values % CHUNK == 0 and spread >= inner.rows
    times = -(-spread // inner.rows) / -(-rows // inner.rows)
    most = _COPY_TILES if inner.instruction.tiles else _COPY_VECTORS
    if in_place and times <= _MOST_SPREAD and (times - 1) * found.filters <= most:
        return Form(Way.IMAGE, image, found.images, spread, panels, runs, values, chunks)
    joined = -(-runs * values // CHUNK)
    if x.dilation == 1 and joined < runs * chunks:  # less is filled up with zeros
        return Form(Way.GATHERED, image, found.images, rows, panels, 1, runs * values, joined, runs)
    return Form(Way.GATHERED, image, found.images, rows, panels, runs, values, chunks)
