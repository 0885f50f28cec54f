"""The sets of inputs on which the runtimes of a validation run: given by the user, or drawn; and extreme ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec

from kintune.core.model import Tensor, spell_shapes
from kintune.core.stage_requests import ValidationItem
from kintune.runtime.extreme_inputs import ExtremeInputs, extreme_inputs
from kintune.runtime.inputs import Array, draw_inputs, load_inputs, write_arrays

__all__ = ["InputSets"]


Shapes: TypeAlias = Mapping[str, tuple[int, ...]]
"""The shapes of inputs, by name."""


class InputSets:
    """Numbered sets of inputs, each a file.  Where a single set is drawn there is none: each process draws it itself.

    `first` is the file of the first set, None if there is none.
    """

    def __init__(
        self, item: ValidationItem, tensors: Sequence[Tensor], directory: Path, drawn: Sequence[Shapes] = ()
    ) -> None:
        """Takes the sets that the item names, or else writes those that it asks for to the directory.

        `drawn` has other shapes that the inputs may have.
        """
        self._drawn = drawn
        self._item = item
        self._tensors = tensors
        self._directory = directory
        self._files: tuple[str | None, ...] = item.inputs or self._draw() or (None,)
        self.first = self._files[0]
        self.extremes: frozenset[int] = frozenset()
        """The numbers of the sets of extreme inputs, and of those of other shapes."""
        self.shaped: frozenset[int] = frozenset()
        """The numbers of the sets of other shapes."""

    def __len__(self) -> int:
        """The number of sets, without those of extreme inputs."""
        return len(self._files) - len(self.extremes)

    def add_extremes(self, keep_integers: bool) -> dict[int, ExtremeInputs]:
        """Adds the sets of inputs of other shapes and of extreme inputs; returns them by their numbers.

        With `keep_integers`, or where the user gave inputs, integers that may decide extents stay as they are.
        """
        given = load_inputs(self._item.inputs[0]) if self._item.inputs else None
        keep_integers = keep_integers or given is not None
        tensors = self._tensors if given is None else self._of_shapes({n: each.shape for n, each in given.items()})
        drawn = extreme_inputs(tensors, self._item.seed, given=given, keep_integers=keep_integers)
        shaped = {self._append(each.arrays): each for each in self._of_other_shapes()}
        self.shaped = frozenset(shaped)
        numbered = shaped | {self._append(each.arrays): each for each in drawn}
        self.extremes |= numbered.keys()
        return numbered

    def _of_other_shapes(self) -> Iterator[ExtremeInputs]:
        """A set of drawn inputs of each of the other shapes, in which nothing is extreme but, it may be, the shapes."""
        for number, shapes in enumerate(self._drawn):
            tensors = self._of_shapes(shapes)
            told = {each.name: shapes[each.name] for each in self._tensors if each.ranges}
            yield ExtremeInputs(
                f"inputs of shape {spell_shapes(told)}", draw_inputs(tensors, self._item.seed + number + 1)
            )

    def _of_shapes(self, shapes: Shapes) -> list[Tensor]:
        """The inputs with these shapes."""
        return [msgspec.structs.replace(each, shape=shapes[each.name], ranges=()) for each in self._tensors]

    def file_of_several(self, at: int) -> str | None:
        """The file of this set; None where there is only one set, with which each process has started."""
        return self._files[at] if len(self._files) > 1 else None

    def redraw(self, values: str) -> int:
        """Draws one more set, whose floating-point numbers are such `values` (as in `Tensor`); returns its number."""
        tensors = (
            msgspec.structs.replace(each, values=values) if not each.values and "float" in each.dtype else each
            for each in self._tensors
        )
        return self._append(draw_inputs(tensors, self._item.seed))

    def _append(self, arrays: Mapping[str, Array]) -> int:
        """Writes one more set, and the first one if there is no file of it; returns the number."""
        if self._files[0] is None:
            self._files = (self._write(0, draw_inputs(self._tensors, self._item.seed)),)
        at = len(self._files)
        self._files = (*self._files, self._write(at, arrays))
        return at

    def _write(self, at: int, arrays: Mapping[str, Array]) -> str:
        path = self._directory / f"inputs {at}.npz"
        write_arrays(path, arrays)
        return str(path)

    def chosen(self, at: int) -> str:
        """The values of inputs that decide what is computed, in this set of inputs; empty where they were given."""
        choosing = [tensor.name for tensor in self._tensors if tensor.choices]
        if not choosing or self._item.inputs or self._files[at] is None:
            return ""
        drawn = load_inputs(str(self._files[at]))
        return ", ".join(f"{name}={drawn[name].reshape(-1)[0]}" for name in choosing)

    def _draw(self) -> tuple[str, ...]:
        """Writes files with sets of inputs; none where one set is enough.

        Their seeds follow each other, or there is one for each value of inputs that decide what is computed.
        """
        draws = self._item.draws
        choices = max((len(tensor.choices) for tensor in self._tensors), default=0)
        if max(draws, choices) < 2:
            return ()
        return tuple(
            self._write(number, draw_inputs(self._tensors, self._item.seed + number % draws, number))
            for number in range(max(draws, choices))
        )
