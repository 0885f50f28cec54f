"""Candidates encoded as rows of numbers, for arithmetic on tens of thousands of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kintune.core.candidate import Axis, Candidate, Sketch

__all__ = ["Encoding", "Population", "Rows", "encodings"]

Rows: TypeAlias = NDArray[np.int64]
"""Encoded decisions, one candidate a row."""


class Population(NamedTuple):
    """n encoded candidates: `sketch`, shape (n,), indexes the encoding's sketches; `rows` has shape (n, width)."""

    sketch: Rows
    rows: Rows

    def __len__(self) -> int:
        return len(self.sketch)

    def take(self, which: NDArray[np.generic]) -> Population:
        """Return the candidates that `which` (indices or a mask) selects."""
        return Population(self.sketch[which], self.rows[which])

    def unique(self) -> Population:
        """Return each different candidate once, in order of first appearance."""
        both = np.ascontiguousarray(np.column_stack([self.sketch, self.rows]))
        keys = both.view(np.dtype((np.void, both.dtype.itemsize * both.shape[1]))).ravel()
        _, first = np.unique(keys, return_index=True)
        return self.take(np.sort(first))

    @staticmethod
    def join(populations: Sequence[Population]) -> Population:
        """Concatenate one or more populations."""
        return Population(
            np.concatenate([h.sketch for h in populations]), np.concatenate([h.rows for h in populations])
        )


class Encoding:
    """The encoding of candidates of a workload's sketches with equal axes: the columns of the decision of each axis.

    A tile takes as many columns as it has parts, a named choice as many as it has names, any other axis one.
    """

    def __init__(self, sketches: Sequence[Sketch]) -> None:
        """`sketches` have equal axes; there is at least one."""
        self.sketches = tuple(sketches)
        self.axes: tuple[Axis, ...] = self.sketches[0].axes
        self.workload = self.sketches[0].workload
        widths = [axis.width for axis in self.axes]
        ends = np.cumsum(widths)
        self.columns = tuple(slice(int(end) - width, int(end)) for end, width in zip(ends, widths, strict=True))
        self.width = int(ends[-1]) if widths else 0
        self._index = {sketch.digest: i for i, sketch in enumerate(self.sketches)}

    def __contains__(self, candidate: Candidate) -> bool:
        return candidate.sketch in self._index

    def encode(self, candidates: Sequence[Candidate]) -> Population:
        """Encode candidates, whose sketches must be among those of this encoding."""
        sketch = np.array([self._index[candidate.sketch] for candidate in candidates], dtype=np.int64)
        flat = [[number for decision in c.decisions for number in decision] for c in candidates]
        return Population(sketch, np.array(flat, dtype=np.int64).reshape(len(candidates), self.width))

    def candidates(self, population: Population) -> Iterator[Candidate]:
        """Decode a population into candidates."""
        for index, row in zip(population.sketch.tolist(), population.rows.tolist(), strict=True):
            decisions = tuple(tuple(row[column]) for column in self.columns)
            yield Candidate(self.workload, self.sketches[index].digest, decisions)


def encodings(sketches: Sequence[Sketch]) -> tuple[Encoding, ...]:
    """Return encodings for all sketches of a workload, in the order of their first sketches."""
    alike: dict[tuple[Axis, ...], list[Sketch]] = {}
    for sketch in sketches:
        alike.setdefault(sketch.axes, []).append(sketch)
    return tuple(Encoding(members) for members in alike.values())
