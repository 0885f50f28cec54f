"""Attention as plain blocks: all scores, their softmax, the product.  This is the untuned program of the pattern."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import te, tirx, topi

from kintune.compiler import tir
from kintune.compiler.kernels.loops import index
from kintune.compiler.programs.attention_pattern import Access, AttentionPattern, pattern_text, place, scored
from kintune.compiler.programs.program import PATTERN

__all__ = ["reference"]


def reference(
    pattern: AttentionPattern, operands: Sequence[tuple[Sequence[int], str]], result: Sequence[int]
) -> tirx.PrimFunc:
    """The function that computes the pattern, which its attribute names.

    Its parameters are the `operands`, given by shapes and types, then the result, of float32 and the shape `result`.
    """
    tensors = [
        te.placeholder([index(extent) for extent in shape], dtype, name=f"operand_{number}")
        for number, (shape, dtype) in enumerate(operands)
    ]
    row, column, depth, width = range(pattern.row, pattern.row + 4)
    batch, extents = pattern.batch, [index(extent) for extent in pattern.extents]

    def read(access: Access, at: Sequence[Any]) -> Any:
        return tensors[access.parameter](*place(access, at))

    along = te.reduce_axis((index(0), extents[depth]), "depth")
    over = te.reduce_axis((index(0), extents[column]), "column")
    zero = tirx.const(0, "float32")

    def score(*at: Any) -> Any:
        at = (*at, along)
        return te.sum(read(pattern.query, at) * read(pattern.key, at), axis=along)

    scores = te.compute(extents[:depth], score, name="attention_scores")
    scale = tirx.const(pattern.scale, "float32")
    changed = te.compute(
        extents[:depth], lambda *at: scored(pattern, scores(*at) * scale, at, read), name="attention_changed"
    )
    weights = topi.nn.softmax(changed, axis=len(batch) + 1)
    if (blank := pattern.blank) is not None:
        softened = weights
        weights = te.compute(
            extents[:depth], lambda *at: tirx.Select(read(blank, at), zero, softened(*at)), name="attention_blank"
        )

    if pattern.zero_nan:
        valid = weights
        weights = te.compute(
            extents[:depth], lambda *at: tirx.Select(tirx.isnan(valid(*at)), zero, valid(*at)), name="attention_valid"
        )

    def mixed(*at: Any) -> Any:
        *outer, last = at
        return te.sum(weights(*outer, over) * read(pattern.value, (*outer, over, index(0), last)), axis=over)

    product = te.compute([*extents[: row + 1], extents[width]], mixed, name="attention_product")
    arranged = te.compute(
        [index(extent) for extent in result], lambda *at: product(*_coordinates(pattern, at)), name="attention_result"
    )
    function = te.create_prim_func([*tensors, arranged], index_dtype_override="int64")
    plain = tir.without(function, "global_symbol")
    return plain.with_attr(PATTERN, pattern_text(pattern)).with_attr(tir.PATTERN, tir.Fusion.OPAQUE)


def _coordinates(pattern: AttentionPattern, at: Sequence[Any]) -> list[Any]:
    """The coordinates (of the batch, row, width) of an element of the result."""
    wanted = [*range(pattern.row + 1), pattern.row + 3]
    found: dict[int, Any] = {}
    for place_of, position in zip(pattern.result.indices, at, strict=True):
        for term in place_of.terms:
            extent = term.modulus or pattern.extents[term.coordinate] // term.divisor
            piece = (position // term.factor % extent) * term.divisor
            found[term.coordinate] = found[term.coordinate] + piece if term.coordinate in found else piece
    return [found.get(coordinate, index(0)) for coordinate in wanted]
