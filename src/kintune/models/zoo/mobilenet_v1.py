"""MobileNet (Howard et al. 2017): pairs of depthwise and pointwise convolutions."""

from __future__ import annotations

import msgspec

from kintune.models.zoo.convolution import CLASSES, classifier, conv_bn_relu6, image_input
from kintune.models.zoo.network import Network, NetworkBuilder

__all__ = ["MOBILENET_V1_0_5", "MobileNetV1", "build"]

_PAIRS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1))
"""Output channels and stride of each pair, at width 1."""


class MobileNetV1(msgspec.Struct, frozen=True):
    """All channels are multiplied by `width`."""

    name: str
    width: float
    image: int = 224


MOBILENET_V1_0_5 = MobileNetV1("mobilenet_v1_0.5", 0.5)


def build(config: MobileNetV1, batch: int) -> Network:
    """Input `input` (batch, 3, image, image), output `logits` (batch, 1000)."""
    b = NetworkBuilder(config.name)
    x = image_input(b, batch, config.image)
    channels = int(32 * config.width)
    x = conv_bn_relu6(b, "features.0", x, 3, channels, 3, 2)
    for i, (full, stride) in enumerate(_PAIRS, start=1):
        out = int(full * config.width)
        x = conv_bn_relu6(b, f"features.{i}.depthwise", x, channels, channels, 3, stride, groups=channels)
        x = conv_bn_relu6(b, f"features.{i}.pointwise", x, channels, out, 1)
        channels = out
    return b.finish([("logits", classifier(b, "classifier", x, channels), (batch, CLASSES))])
