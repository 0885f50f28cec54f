"""Rules for operators of onnxruntime's own set that compute with floats, or with packed weights.

The source is onnxruntime's list of contributed operators (docs/ContribOperators.md).
"""

from __future__ import annotations

from collections.abc import Sequence

from kintune_lab.fuzz.drawing import Attributes, Drawer, Rule
from kintune_lab.fuzz.evaluation import MICROSOFT
from kintune_lab.fuzz.rules.products import factors
from kintune_lab.fuzz.rules.windows import groups, window
from kintune_lab.fuzz.values import POSITIVE, LeafRole

__all__ = ["RULES", "fused"]

_REAL = ("float32",)
_NEAR_ONE = LeafRole(-2, 2)
_ACTIVATIONS: dict[str, tuple[float, ...]] = {
    **dict.fromkeys(("Relu", "Tanh", "Sigmoid"), ()),
    "LeakyRelu": (0.1,),
    "Clip": (-0.5, 0.7),
    "HardSigmoid": (0.2, 0.5),
}


def fused(d: Drawer, operator: str, inputs: Sequence[str], attributes: Attributes, outputs: int = 1) -> None:
    """Append a node of onnxruntime's own set; operators that the standard has, too, have the domain in their name."""
    given = list(inputs)
    while given and not given[-1]:
        given.pop()
    d.node(operator.removeprefix(f"{MICROSOFT}."), given, attributes, outputs, domain=MICROSOFT)


def _optional(d: Drawer, name: str) -> str:
    return name if d.chance(0.5) else ""


def _gelu(d: Drawer, operator: str) -> None:
    x = d.tensor(_REAL, rank=(1, 2, 3, 4))
    inputs = [x]
    if operator == "BiasGelu" or (operator == "FastGelu" and d.chance(0.5)):
        inputs.append(d.tensor(_REAL, shape=d.array(x).shape[-1:]))
    fused(d, operator, inputs, {"alpha": 1.702} if operator == "QuickGelu" and d.chance(0.5) else {})


def _conv(d: Drawer, operator: str) -> None:
    x = d.tensor(_REAL, rank=(3, 4, 4), where=lambda v: v.size > 0)
    _, channels, *spatial = d.array(x).shape
    kernel, attributes = window(d, tuple(spatial))
    group, features = groups(d, channels)
    inputs = [x, d.tensor(_REAL, shape=(features, channels // group, *kernel))]
    inputs.append(_optional(d, d.tensor(_REAL, shape=(features,))))
    activation = d.choice(list(_ACTIVATIONS))
    attributes |= {"group": group, "activation": activation}
    if _ACTIVATIONS[activation]:
        attributes["activation_params"] = _ACTIVATIONS[activation]
    if d.chance(0.3):  # the tensor that is added has the shape of the result
        plain = {name: value for name, value in attributes.items() if not name.startswith("activation")}
        inputs.append(d.node("Conv", [name for name in inputs if name], plain)[0])
    fused(d, operator, inputs, attributes)


def _product(d: Drawer, operator: str) -> None:
    attributes: Attributes = {"alpha": d.choice((1.0, 0.5))}
    if operator == "FusedMatMul":
        a, b = factors(d, _REAL)
        for side, name in (("A", a), ("B", b)):
            if d.array(name).ndim > 1 and d.chance(0.4):
                attributes[f"trans{side}"] = 1
                axes = [*range(d.array(name).ndim)]
                axes[-2:] = axes[:-3:-1]
                name = d.node("Transpose", [name], {"perm": axes})[0]
            a, b = (name, b) if side == "A" else (a, name)
        fused(d, operator, [a, b], attributes)
        return
    a = d.tensor(_REAL, rank=2)
    attributes |= {
        "transA": d.integer(0, 1),
        "transB": d.integer(0, 1),
        "activation": d.choice(("Relu", "LeakyRelu")),
        "activation_alpha": 0.1,
    }
    rows, depth = d.array(a).shape[:: -1 if attributes["transA"] else 1]
    columns = d.extent()
    b = d.tensor(_REAL, shape=(columns, depth) if attributes["transB"] else (depth, columns))
    fused(d, operator, [a, b, _optional(d, d.tensor(_REAL, shape=d.broadcastable((rows, columns))))], attributes)


def _skip_norm(d: Drawer, operator: str) -> None:
    x = d.tensor(_REAL, rank=3)
    width = d.array(x).shape[-1:]
    inputs = [x, d.tensor(_REAL, shape=d.array(x).shape), d.leaf("float32", width, _NEAR_ONE)]
    if operator == "SkipLayerNormalization":
        inputs.append(_optional(d, d.leaf("float32", width, _NEAR_ONE)))
    inputs.append(_optional(d, d.tensor(_REAL, shape=width)))
    fused(d, operator, inputs, {"epsilon": d.choice((1e-5, 1e-3))})


def _embedding(d: Drawer, operator: str) -> None:
    batch, steps, width, words = d.integer(1, 3), d.extent(17), d.choice((4, 8, 17)), d.choice((5, 33))
    ids = d.indices((batch, steps), words, "int32", negative=False)
    segments = d.indices((batch, steps), 2, "int32", negative=False) if d.chance(0.5) else ""
    tables = [d.tensor(_REAL, shape=(rows, width)) for rows in (words, steps + d.integer(0, 3))]
    tables.append(d.tensor(_REAL, shape=(2, width)) if segments else "")
    norm = [d.leaf("float32", (width,), _NEAR_ONE) for _ in range(2)]
    mask = _optional(d, d.leaf("int32", (batch, steps), LeafRole(0, 1)))
    places = _optional(d, d.indices((batch, steps), steps, "int32", negative=False))
    fused(d, operator, [ids, segments, *tables, *norm, mask, places], {}, d.choice((2, 2, 3)))


def _attention(d: Drawer, operator: str) -> None:
    batch, heads, size, steps = d.integer(1, 2), d.choice((1, 2, 4)), d.choice((1, 4, 8)), d.extent(17)
    width = d.choice((4, 8, 17))
    x = d.tensor(_REAL, shape=(batch, steps, width))
    inputs = [x, d.leaf("float32", (width, 3 * heads * size)), d.leaf("float32", (3 * heads * size,))]
    masks = [(batch, steps), (batch,), (batch, steps, steps)]
    shape = d.choice(masks)
    mask = d.leaf("int32", shape, LeafRole(1, steps) if len(shape) == 1 else LeafRole(0, 1))
    inputs += [_optional(d, mask), "", _optional(d, d.tensor(_REAL, shape=(batch, heads, steps, steps)))]
    fused(d, operator, inputs, {"num_heads": heads, "unidirectional": d.integer(0, 1)})


def _heads(d: Drawer, operator: str) -> None:
    batch, heads, size = d.integer(1, 2), d.choice((1, 2, 4)), d.choice((1, 4, 8, 17))
    steps, keys, wide = d.extent(17), d.extent(17), d.choice((size, size, 3))
    extents = ((steps, heads * size), (keys, heads * size), (keys, heads * wide))
    inputs = [d.tensor(_REAL, shape=(batch, *each)) for each in extents]
    inputs.append(_optional(d, d.tensor(_REAL, shape=(heads * (2 * size + wide),))))
    inputs.append(_optional(d, d.leaf("int32", (batch, keys), LeafRole(0, 1))))
    inputs.append(_optional(d, d.tensor(_REAL, shape=(d.choice((1, batch)), heads, steps, keys))))
    attributes: Attributes = {"num_heads": heads}
    if d.chance(0.3):
        attributes |= {"unidirectional": 1}
    if d.chance(0.3):
        attributes["scale"] = 0.3
    fused(d, operator, inputs, attributes)


def _rotary(d: Drawer, operator: str) -> None:
    batch, heads, steps, size = d.integer(1, 2), d.integer(1, 4), d.extent(17), d.choice((4, 8, 16))
    shape = (batch, heads, steps, size) if d.chance(0.5) else (batch, steps, heads * size)
    x = d.tensor(_REAL, shape=shape)
    places = d.indices((batch, steps), 20, "int64", negative=False) if d.chance(0.7) else d.constant([0])
    caches = [d.tensor(_REAL, shape=(20, size // 2)) for _ in range(2)]
    fused(d, operator, [x, places, *caches], {"interleaved": d.integer(0, 1), "num_heads": heads})


def _few_bits(d: Drawer, operator: str) -> None:
    x = d.tensor(_REAL, rank=(2, 3), where=lambda v: v.size > 0)
    depth, columns, block = d.array(x).shape[-1], d.extent(), d.choice((16, 32, 64))
    bits = d.choice((2, 4, 8))
    blocks = -(-depth // block)
    inputs = [x, d.leaf("uint8", (columns, blocks, block * bits // 8), constant=1)]
    inputs.append(d.leaf("float32", (columns * blocks,), LeafRole(0.004, 0.1), constant=1))
    if d.chance(0.5):
        inputs.append(d.leaf("uint8", (columns * -(-blocks * bits // 8),), constant=1))
    if d.chance(0.3):
        inputs += [""] * (5 - len(inputs)) + [d.tensor(_REAL, shape=(columns,))]
    fused(d, operator, inputs, {"K": depth, "N": columns, "bits": bits, "block_size": block})


def _norm_without_mean(d: Drawer, operator: str) -> None:
    x = d.tensor(_REAL, rank=(2, 3))
    d.node(operator, [x, d.leaf("float32", d.array(x).shape[-1:], POSITIVE)], {"axis": -1})


RULES: dict[str, Rule] = {
    **dict.fromkeys(("BiasGelu", "FastGelu", "QuickGelu", f"{MICROSOFT}.Gelu"), _gelu),
    "FusedConv": _conv,
    **dict.fromkeys(("FusedMatMul", "FusedGemm"), _product),
    **dict.fromkeys(("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"), _skip_norm),
    "EmbedLayerNormalization": _embedding,
    f"{MICROSOFT}.Attention": _attention,
    "MultiHeadAttention": _heads,
    f"{MICROSOFT}.RotaryEmbedding": _rotary,
    "MatMulNBits": _few_bits,
    "SimplifiedLayerNormalization": _norm_without_mean,
}
