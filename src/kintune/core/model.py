"""A model as all subpackages know it: its source, its inputs and outputs, the constants that it is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

__all__ = ["Combination", "Constant", "IndexCheck", "ModelRef", "Tensor", "spell_shapes"]


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
    to run with several combinations of shapes, `shapes` is the first and `more_shapes` has the others.
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

    @property
    def reads_other_files(self) -> bool:
        """Whether weights may lie in other files: the user's, or those of a network of the zoo, written by Kintune."""
        return self.own or self.kind == "zoo"

    @property
    def combinations(self) -> tuple[dict[str, tuple[int, ...]], ...]:
        """All combinations of shapes in order, at least one."""
        return (self.shapes, *self.more_shapes)

    def with_combinations(self, combinations: Sequence[dict[str, tuple[int, ...]]]) -> ModelRef:
        """The same model with these combinations of shapes, at least one."""
        return msgspec.structs.replace(self, shapes=combinations[0], more_shapes=tuple(combinations[1:]))

    def each(self) -> tuple[ModelRef, ...]:
        """The model with each combination of its shapes by itself."""
        return tuple(self.with_combinations([shapes]) for shapes in self.combinations)


def spell_shapes(shapes: Mapping[str, Sequence[int]]) -> str:
    """Shapes by input as `--shape` takes them, in one line: `ids=1x32, mask=1x32`."""
    return ", ".join(f"{name}={'x'.join(map(str, shape)) or 'scalar'}" for name, shape in shapes.items())


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
