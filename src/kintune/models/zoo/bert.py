"""BERT (Devlin et al. 2018) and RoBERTa (Liu et al. 2019) encoders with their pooler."""

from __future__ import annotations

import msgspec
import numpy as np
from onnx import TensorProto

from kintune.models.zoo.network import NetworkBuilder, ZooNetwork
from kintune.models.zoo.transformer import INIT_STD, MASKED, attention, feed_forward, layer_norm, linear

__all__ = ["BERT_BASE", "BERT_LARGE", "ROBERTA_LARGE", "Bert", "build"]


class Bert(msgspec.Struct, frozen=True):
    """Sizes of an encoder.

    `padding` is None where positions are counted from 0 (BERT); else it is the id of the padding token, which takes no
    position, so that positions are computed from the ids and start at padding + 1 (RoBERTa).
    """

    name: str
    layers: int
    hidden: int
    heads: int
    vocabulary: int
    positions: int
    types: int
    epsilon: float
    padding: int | None = None
    sequence: int = 128


BERT_BASE = Bert("bert_base", 12, 768, 12, 30522, 512, 2, 1e-12)
BERT_LARGE = Bert("bert_large", 24, 1024, 16, 30522, 512, 2, 1e-12)
ROBERTA_LARGE = Bert("roberta_large", 24, 1024, 16, 50265, 514, 1, 1e-5, padding=1)


def build(config: Bert, batch: int) -> ZooNetwork:
    """Build the encoder.

    Inputs, int64 (batch, sequence): `input_ids`, `attention_mask` and, where there is more than one token type,
    `token_type_ids`.  Outputs: `last_hidden_state` (batch, sequence, hidden) and `pooler_output` (batch, hidden).
    """
    b = NetworkBuilder(config.name)
    shape = (batch, config.sequence)
    ids = b.input("input_ids", shape, TensorProto.INT64)
    seen = b.input("attention_mask", shape, TensorProto.INT64)
    types = b.input("token_type_ids", shape, TensorProto.INT64) if config.types > 1 else None
    x = _embed(b, config, ids, types)
    mask = _additive_mask(b, seen)
    for layer in range(config.layers):
        x = _layer(b, f"encoder.layer.{layer}", x, config, batch, mask)
    first = b.node("Gather", x, b.constant(np.array(0, "<i8")), axis=1)
    pooled = b.node("Tanh", linear(b, "pooler.dense", first, config.hidden, config.hidden))
    return b.finish(
        [("last_hidden_state", x, (*shape, config.hidden)), ("pooler_output", pooled, (batch, config.hidden))]
    )


def _embed(b: NetworkBuilder, config: Bert, ids: str, types: str | None) -> str:
    """Sum of word, token type and position embeddings, normalised."""
    table = "embeddings.{}_embeddings.weight".format
    words = b.node("Gather", b.weight(table("word"), (config.vocabulary, config.hidden), INIT_STD), ids)
    kinds = b.weight(table("token_type"), (config.types, config.hidden), INIT_STD)
    places = b.weight(table("position"), (config.positions, config.hidden), INIT_STD)
    kind = types if types is not None else b.constant(np.zeros((1, config.sequence), "<i8"))
    x = b.node("Add", words, b.node("Gather", kinds, kind))
    x = b.node("Add", x, b.node("Gather", places, _positions(b, config, ids)))
    return layer_norm(b, "embeddings.LayerNorm", x, config.hidden, config.epsilon)


def _positions(b: NetworkBuilder, config: Bert, ids: str) -> str:
    """Position ids: constant for BERT, counted over the tokens that are not padding for RoBERTa."""
    if config.padding is None:
        return b.constant(np.arange(config.sequence, dtype="<i8")[None, :])
    padding = b.constant(np.array(config.padding, "<i8"))
    token = b.node("Cast", b.node("Not", b.node("Equal", ids, padding)), to=TensorProto.INT32)
    count = b.node("CumSum", token, b.constant(np.array(1, "<i8")))
    counted = b.node("Cast", b.node("Mul", count, token), to=TensorProto.INT64)
    return b.node("Add", counted, padding)


def _additive_mask(b: NetworkBuilder, seen: str) -> str:
    """(batch, 1, 1, sequence): 0 where a token is seen, the lowest float where it is not."""
    seen = b.node("Unsqueeze", seen, b.ints(1, 2))
    hidden = b.node("Sub", b.scalar(1.0), b.node("Cast", seen, to=TensorProto.FLOAT))
    return b.node("Mul", hidden, b.scalar(MASKED))


def _layer(b: NetworkBuilder, name: str, x: str, config: Bert, batch: int, mask: str) -> str:
    """Attention and feed-forward, each added to its input and then normalised."""
    hidden = config.hidden
    q, k, v = (linear(b, f"{name}.attention.self.{part}", x, hidden, hidden) for part in ("query", "key", "value"))
    context = attention(b, q, k, v, batch, config.sequence, hidden, config.heads, mask)
    context = linear(b, f"{name}.attention.output.dense", context, hidden, hidden)
    x = layer_norm(b, f"{name}.attention.output.LayerNorm", b.node("Add", context, x), hidden, config.epsilon)
    y = feed_forward(b, f"{name}.intermediate.dense", f"{name}.output.dense", x, hidden, 4 * hidden)
    return layer_norm(b, f"{name}.output.LayerNorm", b.node("Add", y, x), hidden, config.epsilon)
