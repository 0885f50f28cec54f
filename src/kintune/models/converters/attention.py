"""Attention operators of the domain com.microsoft, as several Relax operators.

`compiler.graph.attention` makes one kernel of them.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import numpy as np
from tvm import relax

from kintune.models.converters.integer_products import Triple, real_product
from kintune.models.converters.node import Node
from kintune.models.converters.registration import MICROSOFT, OnnxOperator
from kintune.models.expressions import dtype_of, is_float, shape_of
from kintune.models.formulas import Real, choose

__all__ = ["OPERATORS"]

_EXCLUDED = -10000.0
"""The default of what is added to the scores of keys that a mask excludes."""


class _Heads(NamedTuple):
    """Queries, keys and values, each [batch, heads, rows, width]; the first `past` keys are of an earlier run."""

    query: Any
    key: Any
    value: Any
    past: int = 0

    def after(self, node: Node, key: Any, value: Any) -> _Heads:
        """These heads with the keys and values of an earlier run in front."""

        past = shape_of(key)[2]
        key, value = (node.concat([node.wide(old), new], 2) for old, new in ((key, self.key), (value, self.value)))
        return _Heads(self.query, key, value, past)


def _attention(node: Node) -> Any:
    """Self-attention: one product computes queries, keys and values."""
    data, bias = node.required(0), node.operand(2)
    packed = node.emit(relax.op.matmul(node.wide(data), node.wide(node.required(1))))
    if bias is not None:
        packed = node.emit(relax.op.add(packed, node.wide(bias)))
    return _of_itself(node, packed, node.operand(4), node.operand(3), node.operand(5))


def _quantised_attention(node: Node) -> Any:
    """Self-attention whose data and weights are quantised."""
    left = Triple(node.required(0), node.required(3), node.operand(6))
    right = Triple(node.required(1), node.required(4), node.operand(7))
    return _of_itself(node, real_product(node, left, right, node.operand(2)), node.operand(8), node.operand(5), None)


def _of_itself(node: Node, packed: Any, past: Any, mask: Any, bias: Any) -> Any:
    """Attention of queries, keys and values that are side by side in `packed`; `past` has keys and values before them.

    It returns the result, and with a second output also all keys and values, [2, batch, heads, rows, width].
    """
    columns = shape_of(packed)[2]
    sizes = node.integers("qkv_hidden_sizes", ()) or (columns // 3,) * 3
    if sum(sizes) != columns or sizes[0] != sizes[1]:
        raise ValueError(f"{columns} columns of weights are not queries, keys and values of {list(sizes)}")
    ends = np.cumsum([0, *sizes]).tolist()
    heads = _Heads(*(_by_head(node, node.slice(packed, 2, *pair)) for pair in itertools.pairwise(ends)))
    if past is not None:
        parts = (node.reshape(node.slice(past, 0, at, at + 1), shape_of(past)[1:]) for at in range(2))
        heads = heads.after(node, *parts)
    own = dtype_of(node.required(0)) if is_float(dtype_of(node.required(0))) else "float32"
    result = _attended(node, heads, mask, bias, own)
    if node.outputs == 1:
        return result
    present = [node.reshape(part, [1, *shape_of(part)]) for part in (heads.key, heads.value)]
    return relax.Tuple([result, node.cast(node.concat(present, 0), own)])


def _multi_head_attention(node: Node) -> Any:
    """Attention of queries to keys and values, which may be [batch, heads, rows, width] already."""
    query, key, value, bias = (node.operand(index) for index in range(4))
    if query is None or key is None or value is None or len(shape_of(query)) != 3:
        raise ValueError("queries, keys and values in one tensor are not supported")
    own = dtype_of(query)
    apart = len(shape_of(key)) == 4
    if not apart and len(shape_of(key)) != 3:
        raise ValueError("keys and values in one tensor are not supported")
    if apart and bias is not None:
        raise ValueError("a bias of keys whose heads are apart is not supported")
    wide = [node.wide(each) for each in (query, key, value)]
    if bias is not None:
        ends = np.cumsum([0, *(shape_of(each)[2] for each in wide)]).tolist()
        parts = [node.slice(node.wide(bias), 0, *pair) for pair in itertools.pairwise(ends)]
        wide = [node.emit(relax.op.add(*pair)) for pair in zip(wide, parts, strict=True)]
    heads = _Heads(*(each if len(shape_of(each)) == 4 else _by_head(node, each) for each in wide))
    past_key, past_value = node.operand(6), node.operand(7)
    if past_key is not None and past_value is not None:
        heads = heads.after(node, past_key, past_value)
    result = _attended(node, heads, node.operand(4), node.operand(5), own)
    if node.outputs == 1:
        return result
    return relax.Tuple([result, node.cast(heads.key, own), node.cast(heads.value, own)])


def _by_head(node: Node, tensor: Any) -> Any:
    """Rearranges [batch, rows, heads * width] to [batch, heads, rows, width]."""
    batch, rows, hidden = shape_of(tensor)
    heads = int(node.attributes["num_heads"])
    return node.permute(node.reshape(tensor, [batch, rows, heads, hidden // heads]), [0, 2, 1, 3])


def _attended(node: Node, heads: _Heads, mask: Any, bias: Any, dtype: str) -> Any:
    """The values, weighted by the softmax of the scores, as [batch, rows, heads * width]."""
    query, key, value, _ = heads
    batch, number, rows, depth = shape_of(query)
    scale = float(node.attributes.get("scale", 0.0)) or 1 / math.sqrt(depth)
    scores = (Real(node, query).matmul(Real(node, node.permute(key, [0, 1, 3, 2]))) * scale).value
    for added in (
        None if bias is None else node.wide(bias),
        None if mask is None else _padding(node, mask, shape_of(scores)),
    ):
        scores = scores if added is None else node.emit(relax.op.add(scores, added))
    if node.attributes.get("unidirectional", 0) and rows > 1:
        seen = np.tril(np.ones(shape_of(scores)[2:], np.bool_), heads.past)
        seen[-1] = True  # also where there are more keys than rows, as onnxruntime has it
        scores = node.emit(relax.op.add(scores, relax.const(np.where(seen, 0, -np.inf).astype(np.float32))))
    weights = node.emit(relax.op.nn.softmax(scores, axis=-1))
    moved = node.permute(node.emit(relax.op.matmul(weights, value)), [0, 2, 1, 3])
    return node.cast(node.reshape(moved, [batch, rows, number * shape_of(value)[3]]), dtype)


def _padding(node: Node, mask: Any, scores: tuple[int, ...]) -> Any:
    """The tensor that is added to the scores: 0 for keys that count, and a large negative number for excluded ones.

    A mask has an element for each key, [batch, keys], or for each query and key, [batch, queries, keys].  Or it has the
    ends of the keys of each batch, [batch], which may be followed by their starts, [2 * batch].

    Raises:
        ValueError: when it has another shape.
    """
    batch, _, rows, columns = scores
    shape, given = shape_of(mask), node.cast(mask, "int32")
    if shape in ((batch,), (2 * batch,)):
        places = node.const(np.arange(columns).reshape(1, -1), "int32")
        first, *last = (
            Real(node, node.reshape(node.slice(given, 0, at, at + batch), [batch, 1]))
            for at in range(0, shape[0], batch)
        )
        places = Real(node, places)
        counts = (first > places) & (last[0] <= places) if last else first > places
    elif shape in ((batch, columns), (batch, rows, columns)):
        counts = Real(node, given) > 0
    else:
        raise ValueError(f"a mask of shape {list(shape)} for scores of shape {list(scores)} is not supported")
    seen = Real(node, node.reshape(counts.value, [batch, 1, rows if len(shape) == 3 else 1, columns]))
    excluded = float(node.attributes.get("mask_filter_value", _EXCLUDED))
    return choose(seen, Real(node, node.const(0, "float32")), excluded).value


def _rotary_embedding(node: Node) -> Any:
    """Rotates pairs of elements by angles; two tables have their cosines and sines for each position.

    Elements beyond twice the width of the tables are not changed.
    """
    data, cosines, sines = (node.required(index) for index in (0, 2, 3))
    shape, width = shape_of(data), 2 * shape_of(cosines)[1]
    wide = node.wide(data)
    if len(shape) == 3:
        partial = int(node.attributes.get("rotary_embedding_dim", 0))
        size = shape[2] // int(node.attributes["num_heads"]) if partial else width
        wide = node.permute(node.reshape(wide, [*shape[:2], shape[2] // size, size]), [0, 2, 1, 3])
    batch, heads, rows, size = shape_of(wide)
    if size < width:
        raise ValueError(f"tables for {width} elements do not fit {size}")
    index = _positions(node, batch, rows, shape_of(cosines)[0])
    sizes = [math.prod(shape_of(index)) // rows, 1, rows, width // 2]
    tables = (node.wide(node.emit(relax.op.take(table, index, 0))) for table in (cosines, sines))
    cosines, sines = (node.reshape(table, sizes) for table in tables)
    result = _turned(node, node.slice(wide, 3, 0, width), cosines, sines, [batch, heads, rows, width])
    if size > width:
        result = node.concat([result, node.slice(wide, 3, width, size)], 3)
    result = node.permute(result, [0, 2, 1, 3]) if len(shape) == 3 else result
    return node.cast(node.reshape(result, shape), dtype_of(data))


def _positions(node: Node, batch: int, rows: int, most: int) -> Any:
    """The position of each row as a marked index; a single given position is that of the first row."""
    given = node.required(1)
    if math.prod(shape_of(given)) == 1 and (batch, rows) != (1, 1):
        first = node.reshape(given, [1, 1])
        given = node.emit(relax.op.add(first, node.const(np.arange(rows).reshape(1, -1), "int64")))
    else:
        given = node.reshape(given, [batch, rows])
    return node.index(given, [most], 0, negative=False)


def _turned(node: Node, data: Any, cosines: Any, sines: Any, shape: list[int]) -> Any:
    """Rotates each pair: elements side by side (`interleaved`), or element i of each half."""
    half, interleaved = shape[3] // 2, node.attributes.get("interleaved", 0)
    apart = node.reshape(data, [*shape[:3], *([half, 2] if interleaved else [2, half])])
    axis = 4 if interleaved else 3
    halves = (node.slice(apart, axis, at, at + 1) for at in range(2))
    first, second = (Real(node, node.reshape(each, [*shape[:3], half])) for each in halves)
    cosine, sine = Real(node, cosines), Real(node, sines)
    made = [(first * cosine - second * sine).value, (second * cosine + first * sine).value]
    each = [*shape[:3], *([half, 1] if interleaved else [1, half])]
    return node.reshape(node.concat([node.reshape(part, each) for part in made], axis), shape)


_KEPT = "keys and values that are kept in place are not supported"
_OF_ITSELF: dict[int | str, str] = {
    "do_rotary": "rotary positions are not supported",
    "past_present_share_buffer": _KEPT,
}

OPERATORS = (
    OnnxOperator("Attention", _attention, domain=MICROSOFT, refused={6: _KEPT, **_OF_ITSELF}),
    OnnxOperator("MultiHeadAttention", _multi_head_attention, domain=MICROSOFT, refused=dict.fromkeys((8, 9), _KEPT)),
    OnnxOperator("QAttention", _quantised_attention, domain=MICROSOFT, refused=_OF_ITSELF),
    OnnxOperator(
        "RotaryEmbedding",
        _rotary_embedding,
        domain=MICROSOFT,
        refused={"is_packed_batching": "batches of sequences of several lengths are not supported"},
    ),
)
