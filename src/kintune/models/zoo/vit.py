"""Vision transformers (Dosovitskiy et al. 2020): ViT-Base/16 and ViT-Huge/14 with the classifier of ImageNet."""

from __future__ import annotations

import math

import msgspec
import numpy as np

from kintune.models.zoo.convolution import CLASSES, image_input
from kintune.models.zoo.network import NetworkBuilder, ZooNetwork
from kintune.models.zoo.transformer import INIT_STD, attention, feed_forward, layer_norm, linear

__all__ = ["VIT_BASE", "VIT_HUGE", "Vit", "build"]

_EPSILON = 1e-6


class Vit(msgspec.Struct, frozen=True):
    """Sizes of a vision transformer; `image` must be a multiple of `patch`."""

    name: str
    layers: int
    hidden: int
    heads: int
    patch: int
    image: int = 224


VIT_BASE = Vit("vit_base", 12, 768, 12, 16)
VIT_HUGE = Vit("vit_huge", 32, 1280, 16, 14)


def build(config: Vit, batch: int) -> ZooNetwork:
    """Input `pixel_values` (batch, 3, image, image), output `logits` (batch, 1000)."""
    b = NetworkBuilder(config.name)
    hidden, patch = config.hidden, config.patch
    side = config.image // patch
    patches, tokens = side * side, side * side + 1
    x = image_input(b, batch, config.image, "pixel_values")
    w = b.weight("embeddings.projection.weight", (hidden, 3, patch, patch), math.sqrt(1.0 / (3 * patch * patch)))
    bias = b.weight("embeddings.projection.bias", (hidden,), INIT_STD)
    x = b.node("Conv", x, w, bias, kernel_shape=[patch, patch], strides=[patch, patch])
    x = b.node("Transpose", b.node("Reshape", x, b.ints(batch, hidden, patches)), perm=[0, 2, 1])
    token = b.weight("embeddings.cls_token", (1, 1, hidden), INIT_STD)
    x = b.node("Concat", b.node("Expand", token, b.ints(batch, 1, hidden)), x, axis=1)
    x = b.node("Add", x, b.weight("embeddings.position_embeddings", (1, tokens, hidden), INIT_STD))
    for layer in range(config.layers):
        x = _layer(b, f"encoder.layer.{layer}", x, config, batch, tokens)
    x = layer_norm(b, "layernorm", x, hidden, _EPSILON)
    first = b.node("Gather", x, b.constant(np.array(0, "<i8")), axis=1)
    head = b.weight("classifier.weight", (CLASSES, hidden), INIT_STD)
    logits = b.node("Gemm", first, head, b.weight("classifier.bias", (CLASSES,), INIT_STD), transB=1)
    return b.finish([("logits", logits, (batch, CLASSES))])


def _layer(b: NetworkBuilder, name: str, x: str, config: Vit, batch: int, tokens: int) -> str:
    """Attention and feed-forward, each on the normalised trunk and added to it."""
    hidden = config.hidden
    y = layer_norm(b, f"{name}.layernorm_before", x, hidden, _EPSILON)
    q, k, v = (linear(b, f"{name}.attention.{part}", y, hidden, hidden) for part in ("query", "key", "value"))
    context = attention(b, q, k, v, batch, tokens, hidden, config.heads, None)
    x = b.node("Add", linear(b, f"{name}.attention.output.dense", context, hidden, hidden), x)
    y = layer_norm(b, f"{name}.layernorm_after", x, hidden, _EPSILON)
    return b.node(
        "Add", feed_forward(b, f"{name}.intermediate.dense", f"{name}.output.dense", y, hidden, 4 * hidden), x
    )
