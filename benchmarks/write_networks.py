"""Writes networks that the programs of our own are measured on as ONNX files, with random weights.

    python benchmarks/write_networks.py FOLDER

Recurrent layers, an encoder of speech, a decode step of a language model, a U-Net with group norms, and a DenseNet.
They are the files of `benchmarks/compare_programs.toml`; a file that is there already is left alone.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
from onnx import TensorProto

from kintune.models.zoo.convolution import batch_norm
from kintune.models.zoo.gpt2 import GPT2
from kintune.models.zoo.network import NetworkBuilder, ZooNetwork
from kintune.models.zoo.render import render
from kintune.models.zoo.transformer import INIT_STD, attention, feed_forward, layer_norm, linear

__all__ = ["NETWORKS", "main"]

_STEPS, _UNITS = 100, 256
_PAST = 512


def _recurrent(operator: str, gates: int) -> ZooNetwork:
    """Two layers of 256 units over 100 steps, one sequence."""
    b = NetworkBuilder(operator.lower())
    x = b.input("x", (_STEPS, 1, _UNITS))
    std = 1 / math.sqrt(3 * _UNITS)
    for layer in range(2):
        w = b.weight(f"l{layer}.w", (1, gates * _UNITS, _UNITS), std)
        r = b.weight(f"l{layer}.r", (1, gates * _UNITS, _UNITS), std)
        bias = b.weight(f"l{layer}.b", (1, 2 * gates * _UNITS), std)
        y = b.node(operator, x, w, r, bias, name=f"l{layer}", hidden_size=_UNITS)
        x = b.node("Squeeze", y, b.ints(1))
    return b.finish([("y", x, (_STEPS, 1, _UNITS))])


def _whisper() -> ZooNetwork:
    """The encoder of Whisper base (Radford et al. 2022): 30 s of speech, 1500 positions."""
    hidden, heads, layers, bands, frames = 512, 8, 6, 80, 3000
    b = NetworkBuilder("whisper_base_encoder")
    x = b.input("input_features", (1, bands, frames))
    channels = bands
    for number, stride in ((1, 1), (2, 2)):
        w = b.weight(f"conv{number}.weight", (hidden, channels, 3), INIT_STD)
        bias = b.weight(f"conv{number}.bias", (hidden,), INIT_STD)
        x = _gelu(b, b.node("Conv", x, w, bias, kernel_shape=[3], pads=[1, 1], strides=[stride], name=f"conv{number}"))
        channels = hidden
    positions = frames // 2
    x = b.node("Transpose", x, perm=[0, 2, 1])
    x = b.node("Add", x, b.weight("embed_positions.weight", (positions, hidden), INIT_STD))
    for layer in range(layers):
        name = f"layers.{layer}"
        y = layer_norm(b, f"{name}.self_attn_layer_norm", x, hidden, 1e-5)
        q, k, v = (linear(b, f"{name}.self_attn.{part}_proj", y, hidden, hidden) for part in "qkv")
        context = attention(b, q, k, v, 1, positions, hidden, heads, None)
        x = b.node("Add", x, linear(b, f"{name}.self_attn.out_proj", context, hidden, hidden))
        y = layer_norm(b, f"{name}.final_layer_norm", x, hidden, 1e-5)
        x = b.node("Add", x, feed_forward(b, f"{name}.fc1", f"{name}.fc2", y, hidden, 4 * hidden))
    x = layer_norm(b, "layer_norm", x, hidden, 1e-5)
    return b.finish([("last_hidden_state", x, (1, positions, hidden))])


def _gelu(b: NetworkBuilder, x: str) -> str:
    inner = b.node("Erf", b.node("Div", x, b.scalar(math.sqrt(2.0))))
    return b.node("Mul", b.node("Mul", x, b.node("Add", inner, b.scalar(1.0))), b.scalar(0.5))


def _decode_step() -> ZooNetwork:
    """One step of GPT-2: a token after 512 past ones, whose keys and values are inputs."""
    c, hidden = GPT2, GPT2.hidden
    size = hidden // c.heads
    b = NetworkBuilder("gpt2_decode")
    ids = b.input("input_ids", (1, 1), TensorProto.INT64)
    past = [
        b.input(f"past_{kind}_{n}", (1, c.heads, _PAST, size)) for n in range(c.layers) for kind in ("key", "value")
    ]
    words = b.weight("wte.weight", (c.vocabulary, hidden), INIT_STD)
    places = b.weight("wpe.weight", (c.positions, hidden), INIT_STD)
    x = b.node("Add", b.node("Gather", words, ids), b.node("Gather", places, b.constant(np.array([[_PAST]], "<i8"))))
    outputs = []
    split = b.ints(1, 1, c.heads, size)
    for n in range(c.layers):
        y = layer_norm(b, f"h.{n}.ln_1", x, hidden, c.epsilon)
        qkv = linear(b, f"h.{n}.attn.c_attn", y, hidden, 3 * hidden)
        parts = b.nodes("Split", qkv, b.ints(hidden, hidden, hidden), count=3, axis=2)
        q, k, v = (b.node("Transpose", b.node("Reshape", part, split), perm=[0, 2, 1, 3]) for part in parts)
        k = b.node("Concat", past[2 * n], k, axis=2)
        v = b.node("Concat", past[2 * n + 1], v, axis=2)
        outputs += [(f"key_{n}", k, (1, c.heads, _PAST + 1, size)), (f"value_{n}", v, (1, c.heads, _PAST + 1, size))]
        scores = b.node("MatMul", q, b.node("Transpose", k, perm=[0, 1, 3, 2]))
        weights = b.node("Softmax", b.node("Div", scores, b.scalar(math.sqrt(size))), axis=-1)
        merged = b.node("Transpose", b.node("MatMul", weights, v), perm=[0, 2, 1, 3])
        context = b.node("Reshape", merged, b.ints(1, 1, hidden))
        x = b.node("Add", x, linear(b, f"h.{n}.attn.c_proj", context, hidden, hidden))
        y = layer_norm(b, f"h.{n}.ln_2", x, hidden, c.epsilon)
        x = b.node("Add", x, feed_forward(b, f"h.{n}.mlp.c_fc", f"h.{n}.mlp.c_proj", y, hidden, 4 * hidden))
    x = layer_norm(b, "ln_f", x, hidden, c.epsilon)
    logits = b.node("MatMul", x, b.node("Transpose", words, perm=[1, 0]), name="lm_head")
    return b.finish([("logits", logits, (1, 1, c.vocabulary)), *outputs])


def _unet() -> ZooNetwork:
    """A U-Net of four levels with group norms, SiLU, nearest resizing and concatenations, as in image generators."""
    b = NetworkBuilder("unet")
    side, width = 64, 64
    x = _conv(b, "stem", b.input("x", (1, 4, side, side)), 4, width)
    skips = []
    channels, size = width, side
    for level, factor in enumerate((1, 2, 4)):
        x = _block(b, f"down{level}", x, channels, width * factor, size)
        channels = width * factor
        skips.append((x, channels))
        x = _conv(b, f"down{level}.stride", x, channels, channels, stride=2)
        size //= 2
    x = _block(b, "middle", x, channels, channels, size)
    for level, (skip, skipped) in reversed(list(enumerate(skips))):
        size *= 2
        scales = b.constant(np.array([1, 1, 2, 2], "<f4"))
        x = b.node("Resize", x, "", scales, mode="nearest", nearest_mode="floor",
                   coordinate_transformation_mode="asymmetric")  # fmt: skip
        x = _conv(b, f"up{level}.conv", x, channels, channels)
        x = b.node("Concat", x, skip, axis=1)
        x = _block(b, f"up{level}", x, channels + skipped, skipped, size)
        channels = skipped
    x = _conv(b, "out", _norm(b, "out", x, channels, side), channels, 4)
    return b.finish([("y", x, (1, 4, side, side))])


def _block(b: NetworkBuilder, name: str, x: str, channels: int, out: int, size: int) -> str:
    y = _conv(b, f"{name}.0", _norm(b, f"{name}.0", x, channels, size), channels, out)
    y = _conv(b, f"{name}.1", _norm(b, f"{name}.1", y, out, size), out, out)
    return b.node("Add", y, x if channels == out else _conv(b, f"{name}.skip", x, channels, out, kernel=1))


def _norm(b: NetworkBuilder, name: str, x: str, channels: int, size: int, groups: int = 32) -> str:
    """A group norm as PyTorch exports it, and SiLU."""
    flat = b.node("Reshape", x, b.ints(0, groups, -1))
    ones, zeros = (b.constant(np.full(groups, value, "<f4")) for value in (1.0, 0.0))
    y = b.node("InstanceNormalization", flat, ones, zeros, epsilon=1e-5)
    y = b.node("Reshape", y, b.ints(1, channels, size, size))
    y = b.node("Mul", y, b.weight(f"{name}.norm.weight", (channels, 1, 1), 0.02, centre=1.0))
    y = b.node("Add", y, b.weight(f"{name}.norm.bias", (channels, 1, 1), 0.02))
    return b.node("Mul", y, b.node("Sigmoid", y))


def _conv(b: NetworkBuilder, name: str, x: str, channels: int, out: int, *, kernel: int = 3, stride: int = 1) -> str:
    w = b.weight(f"{name}.weight", (out, channels, kernel, kernel), 1 / math.sqrt(3 * channels * kernel * kernel))
    bias = b.weight(f"{name}.bias", (out,), 0.02)
    pads = [kernel // 2] * 4
    return b.node("Conv", x, w, bias, kernel_shape=[kernel] * 2, pads=pads, strides=[stride] * 2, name=name)


def _densenet() -> ZooNetwork:
    """DenseNet-121 (Huang et al. 2017): norm, ReLU and convolution in this order, averages after each transition."""
    b = NetworkBuilder("densenet121")
    growth, channels, blocks = 32, 64, (6, 12, 24, 16)
    x = b.node("Relu", batch_norm(b, "norm0", _plain_conv(b, "conv0", b.input("x", (1, 3, 224, 224)), 3, 64, 7, 2), 64))
    x = b.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for number, layers in enumerate(blocks):
        for layer in range(layers):
            name = f"denseblock{number}.denselayer{layer}"
            y = b.node("Relu", batch_norm(b, f"{name}.norm1", x, channels))
            y = _plain_conv(b, f"{name}.conv1", y, channels, 4 * growth, 1)
            y = b.node("Relu", batch_norm(b, f"{name}.norm2", y, 4 * growth))
            x = b.node("Concat", x, _plain_conv(b, f"{name}.conv2", y, 4 * growth, growth, 3), axis=1)
            channels += growth
        x = b.node("Relu", batch_norm(b, f"norm{number + 1}", x, channels))
        if number < len(blocks) - 1:
            x = _plain_conv(b, f"transition{number}.conv", x, channels, channels // 2, 1)
            x = b.node("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])
            channels //= 2
    flat = b.node("Flatten", b.node("GlobalAveragePool", x))
    weight = b.weight("classifier.weight", (1000, channels), INIT_STD)
    logits = b.node("Gemm", flat, weight, b.weight("classifier.bias", (1000,), 0.02), transB=1)
    return b.finish([("logits", logits, (1, 1000))])


def _plain_conv(b: NetworkBuilder, name: str, x: str, channels: int, out: int, kernel: int, stride: int = 1) -> str:
    """A convolution without a bias."""
    w = b.weight(f"{name}.weight", (out, channels, kernel, kernel), math.sqrt(2 / (channels * kernel * kernel)))
    pads = [kernel // 2] * 4
    return b.node("Conv", x, w, kernel_shape=[kernel] * 2, pads=pads, strides=[stride] * 2, name=name)


NETWORKS: dict[str, Callable[[], ZooNetwork]] = {
    "lstm": lambda: _recurrent("LSTM", 4),
    "gru": lambda: _recurrent("GRU", 3),
    "whisper_base_encoder": _whisper,
    "gpt2_decode": _decode_step,
    "unet": _unet,
    "densenet121": _densenet,
}
"""The networks by the names of their files."""


def main() -> None:
    """Write the networks into the folder that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    for name, build in NETWORKS.items():
        path = folder / f"{name}.onnx"
        if not path.exists():
            render(build(), folder, seed=0).rename(path)
        print(path)


if __name__ == "__main__":
    main()
