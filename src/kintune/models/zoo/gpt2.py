"""GPT-2 (Radford et al. 2019), the smallest, with its language model head: one forward pass over a prompt, no cache."""

from __future__ import annotations

import math

import msgspec
import numpy as np
from onnx import TensorProto

from kintune.models.zoo.network import NetworkBuilder, ZooNetwork
from kintune.models.zoo.transformer import INIT_STD, MASKED, attention, layer_norm

__all__ = ["GPT2", "Gpt2", "build"]


class Gpt2(msgspec.Struct, frozen=True):
    """Sizes of a decoder."""

    name: str
    layers: int
    hidden: int
    heads: int
    vocabulary: int
    positions: int
    epsilon: float = 1e-5
    sequence: int = 128


GPT2 = Gpt2("gpt2", 12, 768, 12, 50257, 1024)


def build(config: Gpt2, batch: int) -> ZooNetwork:
    """Build the decoder.

    Input `input_ids`, int64 (batch, sequence); output `logits` (batch, sequence, vocabulary), by the transposed word
    embeddings, which head and embedding share as published.
    """
    b = NetworkBuilder(config.name)
    hidden = config.hidden
    ids = b.input("input_ids", (batch, config.sequence), TensorProto.INT64)
    words = b.weight("wte.weight", (config.vocabulary, hidden), INIT_STD)
    places = b.weight("wpe.weight", (config.positions, hidden), INIT_STD)
    position = b.constant(np.arange(config.sequence, dtype="<i8")[None, :])
    x = b.node("Add", b.node("Gather", words, ids), b.node("Gather", places, position))
    mask = b.constant(np.triu(np.full((1, 1, config.sequence, config.sequence), MASKED, "<f4"), k=1))
    for layer in range(config.layers):
        x = _layer(b, f"h.{layer}", x, config, batch, mask)
    x = layer_norm(b, "ln_f", x, hidden, config.epsilon)
    logits = b.node("MatMul", x, b.node("Transpose", words, perm=[1, 0]), name="lm_head/MatMul")
    return b.finish([("logits", logits, (batch, config.sequence, config.vocabulary))])


def _layer(b: NetworkBuilder, name: str, x: str, config: Gpt2, batch: int, mask: str) -> str:
    """Attention and feed-forward, each on the normalised trunk and added to it."""
    hidden, sequence = config.hidden, config.sequence
    # The published initialisation scales what is added to the trunk down by the number of additions.
    added = INIT_STD / math.sqrt(2 * config.layers)
    y = layer_norm(b, f"{name}.ln_1", x, hidden, config.epsilon)
    qkv = _conv1d(b, f"{name}.attn.c_attn", y, batch, sequence, hidden, 3 * hidden, INIT_STD)
    q, k, v = b.nodes("Split", qkv, b.ints(hidden, hidden, hidden), count=3, axis=2)
    context = attention(b, q, k, v, batch, sequence, hidden, config.heads, mask)
    x = b.node("Add", _conv1d(b, f"{name}.attn.c_proj", context, batch, sequence, hidden, hidden, added), x)
    y = layer_norm(b, f"{name}.ln_2", x, hidden, config.epsilon)
    y = _gelu_tanh(b, _conv1d(b, f"{name}.mlp.c_fc", y, batch, sequence, hidden, 4 * hidden, INIT_STD))
    return b.node("Add", x, _conv1d(b, f"{name}.mlp.c_proj", y, batch, sequence, 4 * hidden, hidden, added))


def _conv1d(
    b: NetworkBuilder, name: str, x: str, batch: int, sequence: int, features_in: int, features_out: int, std: float
) -> str:
    """The linear map of the original code, which exports as a Gemm between two reshapes."""
    flat = b.node("Reshape", x, b.ints(-1, features_in))
    w = b.weight(f"{name}.weight", (features_in, features_out), std)
    bias = b.weight(f"{name}.bias", (features_out,), std)
    y = b.node("Gemm", flat, w, bias, name=f"{name}/Gemm", alpha=1.0, beta=1.0)
    return b.node("Reshape", y, b.ints(batch, sequence, features_out))


def _gelu_tanh(b: NetworkBuilder, x: str) -> str:
    """The approximation x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))."""
    cubed = b.node("Mul", b.node("Pow", x, b.scalar(3.0)), b.scalar(0.044715))
    inner = b.node("Tanh", b.node("Mul", b.node("Add", x, cubed), b.scalar(math.sqrt(2.0 / math.pi))))
    return b.node("Mul", b.node("Mul", x, b.scalar(0.5)), b.node("Add", inner, b.scalar(1.0)))
