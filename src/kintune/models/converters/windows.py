"""The windows of a convolution or a pool: kernel, strides, dilations, padding and number of outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kintune.models.converters.node import Node

__all__ = ["Windows", "windows_of"]

_AUTOMATIC = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")


class Windows(NamedTuple):
    """Windows over the spatial axes; each field has one entry for each axis.

    `before` is the padding in front.  `declared_after` is the padding behind that the node declares, and `after` that
    which the windows reach, at least 0.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    declared_after: tuple[int, ...]
    outputs: tuple[int, ...]

    @property
    def padding(self) -> list[int]:
        """All paddings in front, then all behind."""
        return [*self.before, *self.after]

    def element(self, axis: int, output: Any, tap: Any) -> Any:
        """The element of a tap of a window along an axis; in the padding it is out of range."""
        return output * self.strides[axis] + tap * self.dilations[axis] - self.before[axis]

    def is_whole(self, sizes: Sequence[int]) -> bool:
        """Whether there is one window, and it has all elements of axes of these sizes."""
        axes = zip(self.outputs, self.dilations, self.kernel, self.before, sizes, strict=True)
        return all(
            count == 1 and dilation == 1 and taps - before >= size for count, dilation, taps, before, size in axes
        )


def windows_of(
    node: Node, sizes: Sequence[int], kernel: Sequence[int], *, ceil: bool = False, pools: bool = False
) -> Windows:
    """Windows over axes of the given `sizes`, by the node's attributes.

    With `ceil`, a last window may reach beyond the padding, unless it begins behind the last element; so a window may
    be larger than the padded axis.  Where the node `pools`, the padding of SAME is that of a window without dilations,
    as in onnxruntime; so there are fewer windows than the standard says.

    Raises:
        ValueError: when attributes have another rank, a padding is negative, or no window fits.
    """
    rank = len(sizes)
    strides, dilations = (node.integers(name, (1,) * rank) for name in ("strides", "dilations"))
    pads = node.integers("pads", (0,) * (2 * rank))
    automatic = str(node.attributes.get("auto_pad", "NOTSET"))
    if automatic not in _AUTOMATIC:
        raise ValueError(f"auto_pad {automatic!r} is none of {', '.join(_AUTOMATIC)}")
    if len(strides) != rank or len(dilations) != rank or len(kernel) != rank or len(pads) != 2 * rank:
        raise ValueError(f"its attributes are not of {rank} spatial dimensions")
    before, after, outputs = [], [], []
    declared = []
    for axis, (size, taps, stride, dilation) in enumerate(zip(sizes, kernel, strides, dilations, strict=True)):
        reach = (taps - 1) * dilation + 1
        if automatic.startswith("SAME"):
            total = max((-(-size // stride) - 1) * stride + (taps if pools else reach) - size, 0)
            front = total // 2 if automatic == "SAME_UPPER" else total - total // 2
            back = total - front
        else:
            front, back = (pads[axis], pads[rank + axis]) if automatic == "NOTSET" else (0, 0)
        if front < 0 or back < 0:
            raise ValueError("negative paddings cannot be computed; cut the tensor with a Slice before")
        free = size + front + back - reach
        if free < 0 and not (ceil and -free < stride):
            raise ValueError(f"a window of {reach} elements is larger than the {size + front + back} there are")
        count = (-(-free // stride) if ceil else free // stride) + 1
        if ceil and (count - 1) * stride >= size + front:
            count -= 1
        before.append(front)
        declared.append(back)
        after.append(max((count - 1) * stride + reach - size - front, 0))
        outputs.append(count)
    return Windows(tuple(kernel), strides, dilations, tuple(before), tuple(after), tuple(declared), tuple(outputs))
