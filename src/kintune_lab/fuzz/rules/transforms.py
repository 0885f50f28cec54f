"""Rules for attention, transforms of signals, sampling, and sequences."""

from __future__ import annotations

import math

from kintune_lab.fuzz.drawing import Attributes, Drawer, NoSuchValue, Rule
from kintune_lab.fuzz.values import LeafRole

__all__ = ["RULES"]


def _attention(d: Drawer, operator: str) -> None:
    dtype = d.choice(("float32", "float32", "float16"))
    batch, heads, size = d.integer(1, 2), d.choice((1, 2, 4)), d.choice((1, 4, 8, 17))
    groups = d.choice([1, 1, *([2] if heads % 2 == 0 else [])])
    queries, keys, value_size = d.extent(17), d.extent(17), size if d.chance(0.7) else d.choice((3, 8))
    attributes: Attributes = {"is_causal": d.integer(0, 1)}
    if d.chance(0.3):
        attributes["softcap"] = 2.0
    if d.chance(0.3):
        attributes["scale"] = 0.3
    kv = heads // groups
    if d.chance(0.5):
        shapes: list[tuple[int, ...]] = [
            (batch, heads, queries, size),
            (batch, kv, keys, size),
            (batch, kv, keys, value_size),
        ]
    else:
        shapes = [(batch, queries, heads * size), (batch, keys, kv * size), (batch, keys, kv * value_size)]
        attributes |= {"q_num_heads": heads, "kv_num_heads": kv}
    inputs = [d.tensor((dtype,), shape=shape) for shape in shapes]
    past = d.integer(1, 5) if d.chance(0.25) else 0
    if d.chance(0.5):
        mask = (batch, heads, queries, keys + past) if d.chance(0.3) else (queries, keys + past)
        inputs.append(d.tensor((d.choice(("bool", dtype)),), shape=mask))
    elif past:
        inputs.append("")
    if past:
        inputs += [d.tensor((dtype,), shape=(batch, kv, past, extent)) for extent in (size, value_size)]
    elif d.opset >= 24 and d.chance(0.3):
        inputs += [""] * (6 - len(inputs)) + [d.leaf("int64", (batch,), LeafRole(1, keys))]
    outputs = 3 if past else 1
    if past and d.chance(0.3):
        outputs, attributes["qk_matmul_output_mode"] = 4, d.integer(0, 3)
    d.node(operator, inputs, attributes, outputs)


def _rotary(d: Drawer, operator: str) -> None:
    batch, heads, steps, size = d.integer(1, 2), d.integer(1, 4), d.extent(17), d.choice((4, 8, 16))
    attributes: Attributes = {"interleaved": d.integer(0, 1)}
    shape: tuple[int, ...] = (batch, heads, steps, size)
    if d.chance(0.3):
        shape, attributes["num_heads"] = (batch, steps, heads * size), heads
    x = d.tensor(("float32", "float16"), shape=shape)
    if d.chance(0.3):
        attributes["rotary_embedding_dim"] = size = size // 2
    if d.chance(0.5):
        positions = d.indices((batch, steps), 20, "int64", negative=False)
        caches = [d.tensor((d.dtype(x),), shape=(20, size // 2)) for _ in range(2)]
        d.node(operator, [x, *caches, positions], attributes)
    else:
        caches = [d.tensor((d.dtype(x),), shape=(batch, steps, size // 2)) for _ in range(2)]
        d.node(operator, [x, *caches], attributes)


def _grid_sample(d: Drawer, operator: str) -> None:
    axes = 3 if d.opset >= 20 and d.chance(0.3) else 2
    out = [d.extent(8) for _ in range(axes)]
    few = 2000 // math.prod(out)  # the reference takes a millisecond for each value
    x = d.tensor(("float32", "float64"), rank=2 + axes, where=lambda v: math.prod(v.shape[:2]) <= few)
    grid = d.leaf(d.dtype(x), (d.array(x).shape[0], *out, axes), LeafRole(-1.2, 1.2))
    modes = ("bilinear", "nearest", "bicubic") if d.opset < 20 else ("linear", "nearest", "cubic")
    attributes: Attributes = {"mode": d.choice(modes), "align_corners": d.integer(0, 1)}
    attributes["padding_mode"] = d.choice(("zeros", "border", "reflection"))
    d.node(operator, [x, grid], attributes)


def _affine_grid(d: Drawer, operator: str) -> None:
    batch = d.integer(1, 3)
    axes = d.choice((2, 2, 3))
    theta = d.tensor(("float32", "float64"), shape=(batch, axes, axes + 1))
    size = d.constant([batch, d.integer(1, 3), *(d.extent(8) for _ in range(axes))])
    d.node(operator, [theta, size], {"align_corners": d.integer(0, 1)})


def _dft(d: Drawer, operator: str) -> None:
    x = d.tensor(("float32", "float64"), shape=(d.integer(1, 2), d.extent(17), d.extent(17), d.choice((1, 2))))
    attributes: Attributes = {"inverse": d.integer(0, 1)}
    if d.array(x).shape[-1] == 1 and not attributes["inverse"]:
        attributes["onesided"] = d.integer(0, 1)
    length = d.constant(d.extent(17)) if d.chance(0.3) else ""
    if d.opset < 20:
        d.node(operator, [x, length] if length else [x], attributes | {"axis": d.integer(1, 2)})
    else:
        d.node(operator, [x, length, d.constant(d.choice((1, 2, -2, -3)))], attributes)


def _stft(d: Drawer, operator: str) -> None:
    length, frame = d.choice((32, 64)), d.choice((8, 16))
    x = d.tensor(("float32", "float64"), shape=(d.integer(1, 2), length, 1))
    inputs = [x, d.constant(d.choice((frame // 2, 3)))]
    inputs.append(d.tensor((d.dtype(x),), shape=(frame,)) if d.chance(0.7) else "")
    if not inputs[-1] or d.chance(0.3):
        inputs.append(d.constant(frame))
    d.node(operator, inputs, {"onesided": d.integer(0, 1)})


def _window_function(d: Drawer, operator: str) -> None:
    d.node(operator, [d.constant(d.extent(17))], {"periodic": d.integer(0, 1)})


def _mel(d: Drawer, operator: str) -> None:
    d.node(
        operator,
        [d.constant(8), d.constant(32), d.constant(8000), d.constant(0.0, "float32"), d.constant(4000.0, "float32")],
        {},
    )


def _det(d: Drawer, operator: str) -> None:
    size = d.integer(1, 5)
    d.node(operator, [d.tensor(("float32", "float64"), shape=(*d.shape(d.integer(0, 1)), size, size))], {})


def _eye_like(d: Drawer, operator: str) -> None:
    d.node(operator, [d.tensor(("float32", "int32", "int64"), rank=2)], {"k": d.integer(-2, 2)})


def _sequence(d: Drawer, operator: str) -> None:
    x = d.tensor(("float32", "int64"), rank=(1, 2, 3))
    more = [d.tensor((d.dtype(x),), shape=d.array(x).shape) for _ in range(d.integer(0, 2))]
    d.node(operator, [x, *more], {})


def _sequence_item(d: Drawer, operator: str) -> None:
    found = [name for name in d.visible if isinstance(v := d.graph.values[name], list) and v]
    if not found:
        raise NoSuchValue
    name = str(d.choice(found))
    sequence = d.graph.values[name]
    if operator == "SequenceInsert":
        inputs = [name, d.tensor((sequence[0].dtype.name,), shape=sequence[0].shape)]
    else:
        inputs = [name]
    if operator == "SequenceAt" or d.chance(0.5):
        inputs.append(d.constant(d.integer(-len(sequence), len(sequence) - 1)))
    d.node(operator, inputs, {})


def _concat_from_sequence(d: Drawer, operator: str) -> None:
    found = [name for name in d.visible if isinstance(v := d.graph.values[name], list) and v]
    if not found:
        raise NoSuchValue
    d.node(operator, [str(d.choice(found))], {"axis": 0, "new_axis": d.integer(0, 1)})


def _split_to_sequence(d: Drawer, operator: str) -> None:
    x = d.tensor(("float32", "int64"), rank=(1, 2, 3), where=lambda v: v.size > 0)
    shape = d.array(x).shape
    axis = d.axis(len(shape))
    inputs = [x, d.constant(d.choice([by for by in (1, 2, 3) if by <= shape[axis]]))] if d.chance(0.7) else [x]
    d.node(operator, inputs, {"axis": axis, "keepdims": d.integer(0, 1)})


RULES: dict[str, Rule] = {
    "Attention": _attention,
    "RotaryEmbedding": _rotary,
    "GridSample": _grid_sample,
    "AffineGrid": _affine_grid,
    "DFT": _dft,
    "STFT": _stft,
    **dict.fromkeys(("BlackmanWindow", "HammingWindow", "HannWindow"), _window_function),
    "MelWeightMatrix": _mel,
    "Det": _det,
    "EyeLike": _eye_like,
    "SequenceConstruct": _sequence,
    **dict.fromkeys(("SequenceAt", "SequenceErase", "SequenceInsert"), _sequence_item),
    "ConcatFromSequence": _concat_from_sequence,
    "SplitToSequence": _split_to_sequence,
}
