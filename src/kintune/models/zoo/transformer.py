"""The blocks that the transformers share: linear maps, layer norm, attention, GELU."""

from __future__ import annotations

import math

from kintune.models.zoo.network import NetworkBuilder

__all__ = ["INIT_STD", "MASKED", "attention", "feed_forward", "gelu", "layer_norm", "linear"]

INIT_STD = 0.02
"""Standard deviation of the published initialisation of embeddings and linear maps."""

MASKED = -3.4028234663852886e38
"""What is added to the scores of positions that must not be seen: the lowest finite float32."""


def linear(b: NetworkBuilder, name: str, x: str, features_in: int, features_out: int) -> str:
    """Map the last axis; the weight is stored (in, out), as exporters leave it for MatMul."""
    w = b.weight(f"{name}.weight", (features_in, features_out), INIT_STD)
    bias = b.weight(f"{name}.bias", (features_out,), INIT_STD)
    return b.node("Add", b.node("MatMul", x, w, name=f"{name}/MatMul"), bias, name=f"{name}/Add")


def layer_norm(b: NetworkBuilder, name: str, x: str, features: int, epsilon: float) -> str:
    """Normalise over the last axis."""
    scale = b.weight(f"{name}.weight", (features,), 0.02, centre=1.0)
    bias = b.weight(f"{name}.bias", (features,), 0.02)
    return b.node("LayerNormalization", x, scale, bias, name=f"{name}/LayerNormalization", axis=-1, epsilon=epsilon)


def gelu(b: NetworkBuilder, x: str) -> str:
    """x / 2 * (1 + erf(x / sqrt 2)), spelled out as exporters do below operator set 20."""
    inner = b.node("Erf", b.node("Div", x, b.scalar(math.sqrt(2.0))))
    return b.node("Mul", b.node("Mul", x, b.node("Add", inner, b.scalar(1.0))), b.scalar(0.5))


def feed_forward(b: NetworkBuilder, first: str, second: str, x: str, hidden: int, inner: int) -> str:
    """Two linear maps around a GELU."""
    return linear(b, second, gelu(b, linear(b, first, x, hidden, inner)), inner, hidden)


def attention(
    b: NetworkBuilder, q: str, k: str, v: str, batch: int, sequence: int, hidden: int, heads: int, mask: str | None
) -> str:
    """Scaled dot-product attention of (batch, sequence, hidden) operands; `mask` is added to the scores."""
    size = hidden // heads
    split = b.ints(batch, sequence, heads, size)
    q = b.node("Transpose", b.node("Reshape", q, split), perm=[0, 2, 1, 3])
    k = b.node("Transpose", b.node("Reshape", k, split), perm=[0, 2, 3, 1])
    v = b.node("Transpose", b.node("Reshape", v, split), perm=[0, 2, 1, 3])
    scores = b.node("Div", b.node("MatMul", q, k), b.scalar(math.sqrt(size)))
    if mask is not None:
        scores = b.node("Add", scores, mask)
    context = b.node("MatMul", b.node("Softmax", scores, axis=-1), v)
    merged = b.node("Transpose", context, perm=[0, 2, 1, 3])
    return b.node("Reshape", merged, b.ints(batch, sequence, hidden))
