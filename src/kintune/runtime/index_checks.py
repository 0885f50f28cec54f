"""Indices that a network computed, looked at after its run: one that is outside makes its outputs meaningless."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kintune.core.payloads import IndexCheck
from kintune.errors import InputError
from kintune.runtime.inputs import Array

__all__ = ["check_indices"]


def check_indices(checks: Sequence[IndexCheck], indices: Sequence[Array]) -> None:
    """Check the results after the outputs; nothing was read or written outside, whatever they hold.

    Raises:
        InputError: naming the node, the value and the size.
    """
    for check in checks:
        array = indices[check.result]
        sizes = np.array(check.sizes if len(check.sizes) > 1 else check.sizes[0], np.int64)
        lowest = -sizes if check.negative else np.zeros_like(sizes)
        if not array.size or (array.min() >= lowest.max() and array.max() < sizes.min()):
            continue
        outside = (array < lowest) | (array >= sizes)
        if outside.any():
            place = tuple(int(at) for at in np.argwhere(outside)[0])
            offset = place[-1] if len(check.sizes) > 1 else 0
            raise InputError(
                f"{check.node}: the inputs lead to index {int(array[place])}, which is outside of axis "
                f"{check.axis + offset} with {check.sizes[offset]} elements"
            )
