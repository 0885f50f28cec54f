"""Rules for norms, losses, and functions of single elements."""

from __future__ import annotations

from kintune_lab.fuzz.drawing import Attributes, Drawer, Rule
from kintune_lab.fuzz.values import ALL, FLOATS, NUMBERS, POSITIVE, LeafRole

__all__ = ["RULES"]


def _batch_norm(d: Drawer, operator: str) -> None:
    x = d.tensor(FLOATS, rank=(2, 3, 4, 5))
    channels = d.array(x).shape[1]
    dtype = d.dtype(x)
    vectors = [d.leaf(dtype, (channels,), LeafRole(-2, 2)) for _ in range(3)]
    variance = d.leaf(dtype, (channels,), POSITIVE)
    attributes: Attributes = {} if d.chance(0.5) else {"epsilon": 1e-3}
    is_training = d.opset >= 14 and d.chance(0.2)
    if is_training:
        attributes |= {"training_mode": 1, "momentum": d.choice((0.9, 0.5))}
    d.node(operator, [x, *vectors, variance], attributes, 3 if is_training else 1)


def _instance_norm(d: Drawer, operator: str) -> None:
    x = d.tensor(FLOATS, rank=(3, 4, 5))
    channels = d.array(x).shape[1]
    attributes: Attributes = {} if d.chance(0.5) else {"epsilon": 1e-3}
    if operator == "GroupNormalization":
        attributes["num_groups"] = groups = d.choice([g for g in (1, 2, 4, channels) if channels % g == 0])
        channels = channels if d.opset >= 21 else groups
    d.node(operator, [x, *(d.leaf(d.dtype(x), (channels,), LeafRole(-2, 2)) for _ in range(2))], attributes)


def _layer_norm(d: Drawer, operator: str) -> None:
    x = d.tensor(FLOATS, rank=(1, 2, 3, 4))
    shape = d.array(x).shape
    axis = d.axis(len(shape))
    inputs = [x, d.leaf(d.dtype(x), shape[axis % len(shape) :], LeafRole(-2, 2))]
    if operator == "LayerNormalization" and d.chance(0.6):
        inputs.append(d.tensor((d.dtype(x),), shape=shape[axis % len(shape) :]))
    outputs = d.choice((1, 1, 1, 3)) if operator == "LayerNormalization" else 1
    d.node(operator, inputs, {"axis": axis}, outputs)


def _mean_variance(d: Drawer, operator: str) -> None:
    x = d.tensor(("float32",), rank=(1, 2, 3, 4))
    rank = d.array(x).ndim
    d.node(operator, [x], {} if rank == 4 and d.chance(0.5) else {"axes": d.axes(rank)})


def _prelu(d: Drawer, operator: str) -> None:
    x = d.tensor(FLOATS, rank=(1, 2, 3, 4))
    shape = d.array(x).shape
    slope = (shape[1], *(1 for _ in shape[2:])) if len(shape) > 1 and d.chance(0.5) else d.broadcastable(shape)
    d.node(operator, [x, d.tensor((d.dtype(x),), shape=slope)], {})


def _clip(d: Drawer, operator: str) -> None:
    if d.opset < 11:
        d.node(operator, [d.tensor(FLOATS)], {"min": -0.5, "max": 0.7})
        return
    x = d.tensor(FLOATS if d.opset < 12 else (*FLOATS, "int8", "uint8", "int32", "int64"))
    ends = [d.leaf(d.dtype(x), (), constant=0.8) if d.chance(0.7) else "" for _ in range(2)]
    while ends and not ends[-1]:
        ends.pop()
    d.node(operator, [x, *ends], {})


def _where(d: Drawer, operator: str) -> None:
    x = d.tensor(ALL)
    shape = d.array(x).shape
    condition = d.tensor(("bool",), shape=shape if d.chance(0.5) else d.broadcastable(shape))
    d.node(operator, [condition, x, d.tensor((d.dtype(x),), shape=d.broadcastable(shape))], {})


def _divide(d: Drawer, operator: str) -> None:
    x = d.tensor(NUMBERS if operator == "Div" or d.opset >= 10 else FLOATS)
    value = d.array(x)
    shape = d.broadcastable(value.shape)
    attributes: Attributes = {}
    if operator == "Mod" and (value.dtype.kind == "f" or d.chance(0.3)):
        attributes["fmod"] = 1
    if value.dtype.kind == "f":
        d.node(operator, [x, d.tensor((value.dtype.name,), shape=shape)], attributes)
        return
    divisor = d.leaf(value.dtype.name, shape, LeafRole(1, 9))
    if value.dtype.kind == "i" and d.chance(0.4):
        divisor = d.constant(-(d.array(divisor) + 1), value.dtype.name)
    d.node(operator, [x, divisor], attributes)


def _power(d: Drawer, operator: str) -> None:
    x = d.tensor(FLOATS if d.opset < 12 else (*FLOATS, "int32", "int64"))
    value = d.array(x)
    if d.chance(0.5):
        exponent = d.constant(d.choice((2, 3, 0, 1)), value.dtype.name)
    else:
        exponent = d.leaf(value.dtype.name, d.broadcastable(value.shape), LeafRole(0, 3))
    d.node(operator, [x, exponent], {})


def _bit_shift(d: Drawer, operator: str) -> None:
    x = d.tensor(("uint8", "uint16", "uint32", "uint64"))
    shift = d.leaf(d.dtype(x), d.broadcastable(d.array(x).shape), LeafRole(0, 7))
    d.node(operator, [x, shift], {"direction": d.choice(("LEFT", "RIGHT"))})


def _dropout(d: Drawer, operator: str) -> None:
    x = d.tensor(FLOATS)
    if d.opset < 12:
        d.node(operator, [x], {"ratio": 0.3}, d.choice((1, 2)))
        return
    inputs = [x, *([d.constant(0.3, "float32"), d.constant(False, "bool")][: d.integer(0, 2)])]
    d.node(operator, inputs, {}, d.choice((1, 2)))


def _losses(d: Drawer, operator: str) -> None:
    x = d.tensor(("float32", "float64"), rank=(2, 3, 4), where=lambda v: v.size > 0)
    batch, classes, *more = d.array(x).shape
    inputs = [x, d.indices((batch, *more), classes, negative=False)]
    if d.chance(0.4):
        inputs.append(d.leaf(d.dtype(x), (classes,), POSITIVE))
    attributes: Attributes = {"reduction": d.choice(("none", "sum", "mean"))}
    if d.chance(0.3):
        attributes["ignore_index"] = d.integer(0, classes - 1)
    d.node(operator, inputs, attributes, d.choice((1, 2)) if operator == "SoftmaxCrossEntropyLoss" else 1)


RULES: dict[str, Rule] = {
    "BatchNormalization": _batch_norm,
    **dict.fromkeys(("InstanceNormalization", "GroupNormalization"), _instance_norm),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), _layer_norm),
    "MeanVarianceNormalization": _mean_variance,
    "PRelu": _prelu,
    "Clip": _clip,
    "Where": _where,
    **dict.fromkeys(("Div", "Mod"), _divide),
    "Pow": _power,
    "BitShift": _bit_shift,
    "Dropout": _dropout,
    **dict.fromkeys(("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"), _losses),
}
