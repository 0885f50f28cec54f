"""A model as all subpackages know it: its source, its inputs and outputs, the constants that it is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec

__all__ = ["AnyShape", "Combination", "Constant", "IndexCheck", "ModelRef", "Tensor", "spell_extent", "spell_shapes"]

AnyShape: TypeAlias = tuple[int | range, ...]
"""The extents of an input; a `range` stands for each extent in it, and has at least two."""


class Constant(msgspec.Struct, frozen=True):
    """The constant value of an input of a model, as it was given; it is converted to the input's type and shape.

    `dtype` is numpy's name of the elements' type and `shape` their shape.  The elements are in `data`, one after
    another in row-major order and little endian, or in the .npy file `path` when there are many.  `digest` is that of
    type, shape and elements.
    """

    dtype: str
    shape: tuple[int, ...]
    digest: str
    data: bytes = b""
    path: str = ""


class ModelRef(msgspec.Struct, frozen=True):
    """Where a model comes from: `kind` is "onnx", "exported" (a PyTorch exported program) or "zoo".

    `source` is a path, or a zoo name; `shapes` binds dynamic inputs; `options` are the zoo's (batch, sequence);
    `constants` has the inputs whose values are fixed for good, and which the result no longer has.  Where the result is
    to run with several combinations of shapes, `shapes` is the first and `more_shapes` has the others.  Where it is to
    run with any extents in a range, `shapes` has the greatest, and `ranges` the open axes by input: number, least
    extent, step.  `assumed` are the inputs whose shapes nobody named, and for which Kintune chose some.
    `own` says that the user of this machine named the file: its weights may lie in other files, also behind links
    within a Hugging Face cache.  A file that somebody uploaded must contain its weights.
    """

    kind: str
    source: str
    name: str
    shapes: dict[str, tuple[int, ...]] = {}
    options: dict[str, int] = {}
    constants: dict[str, Constant] = {}
    own: bool = False
    more_shapes: tuple[dict[str, tuple[int, ...]], ...] = ()
    ranges: dict[str, tuple[tuple[int, int, int], ...]] = {}
    assumed: tuple[str, ...] = ()

    @property
    def any_shapes(self) -> dict[str, AnyShape]:
        """The shapes of inputs with their ranges; where there are several combinations, the first."""
        found: dict[str, AnyShape] = {}
        for name, shape in self.shapes.items():
            ranges = {axis: range(least, shape[axis] + 1, step) for axis, least, step in self.ranges.get(name, ())}
            found[name] = tuple(ranges.get(axis, extent) for axis, extent in enumerate(shape))
        return found

    @property
    def reads_other_files(self) -> bool:
        """Whether weights may lie in other files: the user's, or those of a network of the zoo, written by Kintune."""
        return self.own or self.kind == "zoo"

    @property
    def combinations(self) -> tuple[dict[str, tuple[int, ...]], ...]:
        """All combinations of shapes in order, at least one."""
        return (self.shapes, *self.more_shapes)

    def with_combinations(self, combinations: Sequence[Mapping[str, AnyShape]]) -> ModelRef:
        """The same model with these combinations of shapes, at least one; only a single one has ranges."""
        first, *more = [
            {name: tuple(each if isinstance(each, int) else each[-1] for each in shape) for name, shape in of.items()}
            for of in combinations
        ]
        ranges = {
            name: found
            for name, shape in combinations[0].items()
            if (found := tuple((at, e.start, e.step) for at, e in enumerate(shape) if isinstance(e, range)))
        }
        return msgspec.structs.replace(self, shapes=first, more_shapes=tuple(more), ranges=ranges)

    def each(self) -> tuple[ModelRef, ...]:
        """The model with each combination of its shapes by itself."""
        return tuple(self.with_combinations([shapes]) for shapes in self.combinations)


def spell_shapes(shapes: Mapping[str, Sequence[int | range]]) -> str:
    """Shapes by input as `--shape` takes them, in one line: `ids=1x32, mask=1x{1..512}`."""
    return ", ".join(f"{name}={'x'.join(map(spell_extent, shape)) or 'scalar'}" for name, shape in shapes.items())


def spell_extent(extent: int | range) -> str:
    """An extent, or a range of extents: `{1..512}`, and in steps `{8..512:8}`."""
    if isinstance(extent, int):
        return str(extent)
    step = f":{extent.step}" if extent.step > 1 else ""
    return f"{{{extent.start}..{extent[-1]}{step}}}"


class Tensor(msgspec.Struct, frozen=True):
    """A named input or output of a model.

    `dtype` is the name of the elements' type, such as "float32" or "string"; of an output that is no tensor, it is its
    kind ("sequence", "map", "optional"), and the shape is empty.
    `bounds` holds the least and the greatest value that an integer input may have, where the model uses it as an index;
    None where any value will do.  `values` says what an input stands for, as far as its use tells: "ids" (less than
    `below`), "mask", "bytes", "counts", "lengths", "image", "positive", "choices" (all elements are one of `choices`,
    with which the model compares it), "sizes" (which the network does not read: it has decided extents) or nothing;
    inputs are drawn accordingly.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    bounds: tuple[int, int] | None = None
    values: str = ""
    below: int = 0
    choices: tuple[float | int, ...] = ()
    ranges: tuple[tuple[int, int, int], ...] = ()


class IndexCheck(msgspec.Struct, frozen=True):
    """An index tensor that the network computes, and the range in which its values must lie.

    `result` is its number among the results that follow the outputs of the network.  `node` names the user's node that
    reads by it.  It indexes one axis of `sizes[0]` entries; or the entries of its last dimension index several axes, of
    `sizes` entries, the first of which is `axis`.  If `negative`, values below 0 count from the end.
    """

    node: str
    result: int
    sizes: tuple[int, ...]
    axis: int
    negative: bool


class Combination(msgspec.Struct, frozen=True):
    """The inputs and outputs of a network for one combination of shapes; see `Manifest` for `checks`."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    checks: tuple[IndexCheck, ...] = ()

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the inputs by name."""
        return {tensor.name: tensor.shape for tensor in self.inputs}
