"""ResNet-18, -50 and -152 (He et al. 2015), in the variant that strides in the 3x3 convolution of a bottleneck."""

from __future__ import annotations

import msgspec

from kintune.models.zoo.convolution import CLASSES, batch_norm, classifier, conv, image_input
from kintune.models.zoo.network import NetworkBuilder, ZooNetwork

__all__ = ["RESNET18", "RESNET50", "RESNET152", "ResNet", "build"]

_RESIDUAL_GAMMA = 0.2  # branches add little to the trunk, so that activations stay level over any depth


class ResNet(msgspec.Struct, frozen=True):
    """Blocks in each of the four stages; a bottleneck block widens its output fourfold."""

    name: str
    blocks: tuple[int, int, int, int]
    bottleneck: bool
    image: int = 224


RESNET18 = ResNet("resnet18", (2, 2, 2, 2), bottleneck=False)
RESNET50 = ResNet("resnet50", (3, 4, 6, 3), bottleneck=True)
RESNET152 = ResNet("resnet152", (3, 8, 36, 3), bottleneck=True)


def build(config: ResNet, batch: int) -> ZooNetwork:
    """Input `input` (batch, 3, image, image), output `logits` (batch, 1000)."""
    b = NetworkBuilder(config.name)
    x = image_input(b, batch, config.image)
    x = _conv_bn(b, "conv1", "bn1", x, 3, 64, 7, 2)
    x = b.node("Relu", x)
    x = b.node("MaxPool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2])
    channels = 64
    for stage, blocks in enumerate(config.blocks):
        width = 64 << stage
        for block in range(blocks):
            stride = 2 if stage > 0 and block == 0 else 1
            x, channels = _block(b, f"layer{stage + 1}.{block}", x, channels, width, stride, config.bottleneck)
    return b.finish([("logits", classifier(b, "fc", x, channels), (batch, CLASSES))])


def _block(
    b: NetworkBuilder, name: str, x: str, channels: int, width: int, stride: int, bottleneck: bool
) -> tuple[str, int]:
    """One residual block and its number of output channels."""
    if bottleneck:
        out = 4 * width
        layers = [(channels, width, 1, 1), (width, width, 3, stride), (width, out, 1, 1)]
    else:
        out = width
        layers = [(channels, width, 3, stride), (width, width, 3, 1)]
    y = x
    for i, (cin, cout, kernel, step) in enumerate(layers, start=1):
        last = i == len(layers)
        gamma = _RESIDUAL_GAMMA if last else 1.0
        y = _conv_bn(b, f"{name}.conv{i}", f"{name}.bn{i}", y, cin, cout, kernel, step, gamma)
        if not last:
            y = b.node("Relu", y)
    if stride != 1 or channels != out:
        x = _conv_bn(b, f"{name}.downsample.0", f"{name}.downsample.1", x, channels, out, 1, stride)
    return b.node("Relu", b.node("Add", y, x)), out


def _conv_bn(
    b: NetworkBuilder,
    conv_name: str,
    bn_name: str,
    x: str,
    cin: int,
    cout: int,
    kernel: int,
    stride: int,
    gamma: float = 1.0,
) -> str:
    return batch_norm(b, bn_name, conv(b, conv_name, x, cin, cout, kernel, stride), cout, gamma)
