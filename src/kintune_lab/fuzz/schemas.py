"""Draws a node from its operator's schema: types, optional and repeated inputs, attributes.

Operators whose schema does not say which shapes or values are valid have a rule in `rules`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import defs
from onnx.defs import OpSchema

from kintune.models.converters.declared import standard
from kintune_lab.fuzz.drawing import Attributes, Drawer, NoSuchValue
from kintune_lab.fuzz.graph import DrawnGraph
from kintune_lab.fuzz.rules.table import ATTRIBUTES, OTHERS, QUANTISED, RULES, SHARES
from kintune_lab.fuzz.values import INTEGERS

__all__ = ["draw_graph", "drawn_operators"]

_FIRST_OPSET, _LAST_OPSET = 7, 26
_FIRST_QUANTISED_OPSET = 10
_MEAN_NODES = 10

_FAVOURED_TYPES = ("float32",) * 6 + ("float16", "float64", "int8", "uint8", "int32", "int64", "bool", "")
_FAVOURED_BYTES = ("int8", "uint8", "uint8", "float32")
_BOOST = 40.0
_OFTEN_FUSED = (
    *(
        "Conv",
        "ConvTranspose",
        "BatchNormalization",
        "Relu",
        "LeakyRelu",
        "Sigmoid",
        "HardSigmoid",
        "HardSwish",
        "Clip",
    ),
    *("Add", "Mul", "Sub", "Div", "MaxPool", "AveragePool", "GlobalAveragePool", "Concat", "Split", "Slice", "Resize"),
    *("Pad", "Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "DepthToSpace", "MatMul", "Gemm", "Softmax"),
    *("LayerNormalization", "InstanceNormalization", "ReduceMean", "ReduceSum", "Gelu", "Erf", "Tanh", "Exp", "Where"),
    *("Gather", "Expand", "Cast", "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "QLinearConv"),
    *("QLinearMatMul", "MatMulInteger", "ConvInteger", "QLinearAdd", "QLinearMul", "ArgMax", "TopK", "Attention"),
)
_Option = OpSchema.FormalParameterOption
_LEFT_OUT = frozenset(
    {
        *("Bernoulli", "Constant", "NonMaxSuppression", "NonZero", "Optional", "OptionalGetElement"),
        *("OptionalHasElement", "SequenceEmpty", "SequenceMap", "Unique"),
    }
)
"""Operators that can be imported and are not drawn: results are random, no numbers, or of a shape that data decides."""

_DTYPES = {
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    "tensor(bool)": "bool",
    **{f"tensor({name})": name for name in ("float16", *INTEGERS)},
}


@functools.cache
def drawn_operators(opset: int) -> tuple[tuple[str, float], ...]:
    """The operators of an operator set, each with its share among the nodes that are drawn."""
    found = {}
    for schema in defs.get_all_schemas_with_history():
        drawn = schema.domain == "" and schema.since_version <= opset and schema.name in standard() - _LEFT_OUT
        if drawn and not _schema(schema.name, opset).deprecated:
            found[schema.name] = SHARES.get(schema.name, 1.0)
    found |= {name: SHARES.get(name, 0.4) for name in OTHERS}
    return tuple(sorted(found.items()))


@functools.cache
def _schema(name: str, opset: int) -> OpSchema:
    return defs.get_schema(name, opset, "")


def _draw_node(drawer: Drawer, operator: str) -> None:
    """Append a node of this operator.

    Raises:
        Refused: onnxruntime does not take what was drawn.
        NoSuchValue: there are no operands for it.
    """
    rule = RULES.get(operator)
    if rule is not None:
        rule(drawer, operator)
        return
    schema = _schema(operator, drawer.opset)
    inputs = _inputs(drawer, schema)
    operands = [drawer.graph.values[name] for name in inputs if name]
    rank = operands[0].ndim if operands and isinstance(operands[0], np.ndarray) else 0
    drawer.node(operator, inputs, _attributes_of(drawer, schema, rank), _outputs(drawer, schema))


def _attributes_of(drawer: Drawer, schema: OpSchema, rank: int) -> Attributes:
    """Values of attributes; half of those that may be left out are."""
    found: Attributes = {}
    for name, attribute in schema.attributes.items():
        if not attribute.required and drawer.chance(0.5):
            continue
        special = ATTRIBUTES.get((schema.name, name), ATTRIBUTES.get(("", name)))
        if special is not None:
            found[name] = special(drawer, rank)
        elif attribute.type == OpSchema.AttrType.INT:
            found[name] = drawer.integer(0, 1)
        elif attribute.type == OpSchema.AttrType.FLOAT:
            found[name] = round(float(drawer.rng.uniform(0.01, 2.0)), 3)
        elif attribute.required:
            raise NoSuchValue
    return found


def _inputs(drawer: Drawer, schema: OpSchema) -> list[str]:
    """Operands of the types that the schema allows; those of one type parameter have one type."""
    bound: dict[str, str] = {}
    inputs: list[str] = []
    shape: tuple[int, ...] | None = None
    for parameter in schema.inputs:
        if parameter.option == _Option.Optional and drawer.chance(0.5):
            inputs.append("")
            continue
        repeated = drawer.integer(1, 4) if parameter.option == _Option.Variadic else 1
        for _ in range(repeated):
            allowed = [bound[parameter.type_str]] if parameter.type_str in bound else sorted(parameter.types)
            name = _operand(drawer, allowed, shape)
            inputs.append(name)
            value = drawer.graph.values[name]
            if isinstance(value, np.ndarray):
                bound[parameter.type_str] = _type_of(value)
                shape = value.shape if shape is None else shape
    while inputs and not inputs[-1]:
        inputs.pop()
    return inputs


def _operand(drawer: Drawer, allowed: Sequence[str], shape: tuple[int, ...] | None) -> str:
    """A tensor or sequence of one of these types; of a shape that broadcasts to `shape`, if there is one."""
    dtypes = [_DTYPES[name] for name in allowed if name in _DTYPES]
    if not dtypes:
        found = [n for n in drawer.visible if isinstance(drawer.graph.values[n], list)]
        if not found:
            raise NoSuchValue
        return str(drawer.choice(found))
    dtype = [drawer.likely(dtypes)] if drawer.chance(0.5) else dtypes
    if shape is None:
        return drawer.tensor(dtype, where=lambda value: value.ndim > 0 or drawer.chance(0.2))
    if drawer.chance(0.6):
        return drawer.tensor(dtypes, shape=shape)
    if drawer.chance(0.4):
        return drawer.tensor(dtypes, where=lambda value: _broadcasts(value.shape, shape))
    return drawer.leaf(drawer.likely(dtypes), drawer.broadcastable(shape))


def _broadcasts(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return all(1 in pair or pair[0] == pair[1] for pair in zip(reversed(one), reversed(other), strict=False))


def _type_of(value: Any) -> str:
    return next(name for name, dtype in _DTYPES.items() if dtype == value.dtype.name)


def _outputs(drawer: Drawer, schema: OpSchema) -> int:
    """How many outputs: all that must be there, and some of the others."""
    least = max(schema.min_output, 1)
    most = min(schema.max_output, least + 1)
    return drawer.integer(least, max(least, most))


def _favoured(rng: np.random.Generator, operators: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
    """The operators with their shares in a graph: a few of them occur often, so that they meet.

    Half of these are often fused or change layouts.  Groce et al., "Swarm testing", 2012: that a test has few features
    makes it find more.
    """
    names = [name for name, _ in operators]
    known = [name for name in _OFTEN_FUSED if name in names]
    number = int(rng.integers(0, 9))
    chosen = {*rng.choice(known, min(number, len(known)), replace=False), *rng.choice(names, number, replace=False)}
    return [(name, share * (_BOOST if name in chosen else 1.0)) for name, share in operators]


def draw_graph(seed: int, number: int, *, quantised: bool = False) -> DrawnGraph:
    """Draw graph `number`; it depends on the two numbers, and on the installed onnx and onnxruntime, alone.

    With `quantised`, most of its operators are those of quantised models.
    """
    rng = np.random.default_rng((seed, number))
    opset = int(rng.integers(_FIRST_QUANTISED_OPSET if quantised else _FIRST_OPSET, _LAST_OPSET + 1))
    operators = list(QUANTISED.items()) if quantised else _favoured(rng, drawn_operators(opset))
    drawer = Drawer(rng, opset, operators, _draw_node)
    drawer.favoured = str(rng.choice(_FAVOURED_BYTES if quantised else _FAVOURED_TYPES))
    drawer.grow(1 + int(rng.poisson(_MEAN_NODES - 1)))
    drawer.graph.nodes = drawer.nodes
    return drawer.graph
