"""MobileNet in two versions: pairs of depthwise and pointwise convolutions, and inverted residuals.

Version 1: Howard et al. 2017.  Version 2: Sandler et al. 2018.
"""

from __future__ import annotations

import msgspec

from kintune.models.zoo.convolution import CLASSES, batch_norm, classifier, conv, conv_bn_relu6, image_input
from kintune.models.zoo.network import NetworkBuilder, ZooNetwork

__all__ = ["MOBILENET_V1_0_5", "MOBILENET_V2", "MOBILENET_V2_0_5", "MobileNetV1", "MobileNetV2", "build"]

_PAIRS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1))
"""Output channels and stride of each pair, at width 1."""

_STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""Expansion, output channels at width 1, blocks, stride of the first block."""

_LAST = 1280
_RESIDUAL_GAMMA = 0.5


class MobileNetV1(msgspec.Struct, frozen=True):
    """All channels are multiplied by `width`."""

    name: str
    width: float
    image: int = 224


class MobileNetV2(msgspec.Struct, frozen=True):
    """All channels but the last are multiplied by `width` and rounded to a multiple of 8."""

    name: str
    width: float
    image: int = 224


MOBILENET_V1_0_5 = MobileNetV1("mobilenet_v1_0.5", 0.5)
MOBILENET_V2 = MobileNetV2("mobilenet_v2", 1.0)
MOBILENET_V2_0_5 = MobileNetV2("mobilenet_v2_0.5", 0.5)


def build(config: MobileNetV1 | MobileNetV2, batch: int) -> ZooNetwork:
    """Input `input` (batch, 3, image, image), output `logits` (batch, 1000)."""
    b = NetworkBuilder(config.name)
    x = image_input(b, batch, config.image)
    if isinstance(config, MobileNetV1):
        logits = classifier(b, "classifier", *_pairs(b, x, config.width))
    else:
        logits = classifier(b, "classifier.1", *_inverted_residuals(b, x, config.width))
    return b.finish([("logits", logits, (batch, CLASSES))])


def _pairs(b: NetworkBuilder, x: str, width: float) -> tuple[str, int]:
    """The features of version 1, and their number."""
    channels = int(32 * width)
    x = conv_bn_relu6(b, "features.0", x, 3, channels, 3, 2)
    for i, (full, stride) in enumerate(_PAIRS, start=1):
        out = int(full * width)
        x = conv_bn_relu6(b, f"features.{i}.depthwise", x, channels, channels, 3, stride, groups=channels)
        x = conv_bn_relu6(b, f"features.{i}.pointwise", x, channels, out, 1)
        channels = out
    return x, channels


def _inverted_residuals(b: NetworkBuilder, x: str, width: float) -> tuple[str, int]:
    """The features of version 2, and their number."""
    channels = _round_to_8(32 * width)
    x = conv_bn_relu6(b, "features.0", x, 3, channels, 3, 2)
    index = 1
    for expansion, full, blocks, first_stride in _STAGES:
        out = _round_to_8(full * width)
        for block in range(blocks):
            stride = first_stride if block == 0 else 1
            x = _inverted_residual(b, f"features.{index}", x, channels, out, expansion, stride)
            channels = out
            index += 1
    last = max(_LAST, _round_to_8(_LAST * width))
    return conv_bn_relu6(b, f"features.{index}", x, channels, last, 1, gain=1.0), last


def _inverted_residual(
    b: NetworkBuilder, name: str, x: str, channels: int, out: int, expansion: int, stride: int
) -> str:
    """Widen, filter each channel, narrow without an activation; add the input where the shapes agree."""
    hidden = channels * expansion
    y = x
    if expansion != 1:
        y = conv_bn_relu6(b, f"{name}.expand", y, channels, hidden, 1, gain=1.0)
    y = conv_bn_relu6(b, f"{name}.depthwise", y, hidden, hidden, 3, stride, groups=hidden)
    adds = stride == 1 and channels == out
    y = conv(b, f"{name}.project.0", y, hidden, out, 1)
    y = batch_norm(b, f"{name}.project.1", y, out, _RESIDUAL_GAMMA if adds else 1.0)
    return b.node("Add", x, y) if adds else y


def _round_to_8(channels: float) -> int:
    """The nearest multiple of 8, at least 8, which loses no more than a tenth of the channels."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded
