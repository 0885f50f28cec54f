"""The blocks that the convolutional networks share: convolution, batch norm, activation, classifier."""

from __future__ import annotations

import math

from kintune.models.zoo.network import NetworkBuilder, WeightRole

__all__ = ["CLASSES", "batch_norm", "classifier", "conv", "conv_bn_relu6", "image_input"]

CLASSES = 1000
"""Classes of ImageNet."""

_EPSILON = 1e-5


def image_input(b: NetworkBuilder, batch: int, image: int, name: str = "input") -> str:
    """Add the input of shape (batch, 3, image, image)."""
    return b.input(name, (batch, 3, image, image))


def conv(
    b: NetworkBuilder,
    name: str,
    x: str,
    cin: int,
    cout: int,
    kernel: int,
    stride: int = 1,
    groups: int = 1,
    gain: float = 2.0,
) -> str:
    """Convolve without bias, padded by half the kernel.

    He's initialisation by fan-in: gain 2 before a ReLU, else 1.
    """
    pad = (kernel - 1) // 2
    fan_in = cin // groups * kernel * kernel
    w = b.weight(f"{name}.weight", (cout, cin // groups, kernel, kernel), math.sqrt(gain / fan_in))
    return b.node(
        "Conv",
        x,
        w,
        name=f"{name}/Conv",
        dilations=[1, 1],
        group=groups,
        kernel_shape=[kernel, kernel],
        pads=[pad] * 4,
        strides=[stride, stride],
    )


def batch_norm(b: NetworkBuilder, name: str, x: str, channels: int, gamma: float = 1.0) -> str:
    """Normalise by running statistics near those of the initialised network; `gamma` is the scale's centre."""
    shape = (channels,)
    return b.node(
        "BatchNormalization",
        x,
        b.weight(f"{name}.weight", shape, 0.1 * gamma, centre=gamma),
        b.weight(f"{name}.bias", shape, 0.1),
        b.weight(f"{name}.running_mean", shape, 0.1, role=WeightRole.STATISTIC),
        b.weight(f"{name}.running_var", shape, 0.1, centre=1.0, role=WeightRole.STATISTIC),
        name=f"{name}/BatchNormalization",
        epsilon=_EPSILON,
    )


def conv_bn_relu6(
    b: NetworkBuilder,
    name: str,
    x: str,
    cin: int,
    cout: int,
    kernel: int,
    stride: int = 1,
    groups: int = 1,
    gain: float = 2.0,
) -> str:
    """Convolve, normalise, and clip to [0, 6]: the unit of the mobile networks."""
    y = batch_norm(b, f"{name}.1", conv(b, f"{name}.0", x, cin, cout, kernel, stride, groups, gain), cout)
    return b.node("Clip", y, b.scalar(0.0), b.scalar(6.0), name=f"{name}.2/Clip")


def classifier(b: NetworkBuilder, name: str, x: str, features: int) -> str:
    """Average over the image, and map to the logits of the classes."""
    pooled = b.node("GlobalAveragePool", x)
    flat = b.node("Flatten", pooled, axis=1)
    w = b.weight(f"{name}.weight", (CLASSES, features), math.sqrt(1.0 / features))
    bias = b.weight(f"{name}.bias", (CLASSES,), 0.01)
    return b.node("Gemm", flat, w, bias, name=f"{name}/Gemm", transB=1)
