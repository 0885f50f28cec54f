"""Grows a graph node by node: a node that onnxruntime refuses is dropped, so that every graph is valid."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from onnx import GraphProto, NodeProto, helper

from kintune_lab.fuzz.evaluation import Evaluator, Refused, Value, value_info
from kintune_lab.fuzz.graph import DrawnGraph, Leaf
from kintune_lab.fuzz.known import expected_of, is_overruled, undefined
from kintune_lab.fuzz.values import ANY, FLOATS, Array, LeafRole, draw_extreme, draw_ordinary

__all__ = ["Attributes", "Drawer", "NoSuchValue", "Rule"]

_EXTENTS = (1, 1, 2, 3, 4, 5, 7, 8, 16, 17, 197)
_LARGEST = 60_000  # elements of a tensor
_TRIES = 12  # at most so many, for each node that is wanted

Attributes = dict[str, Any]


class NoSuchValue(Exception):
    """A rule finds no operand for its node, or has no node at this version."""


Rule: TypeAlias = "Callable[[Drawer, str], None]"
"""Draws the operands and attributes of a node of an operator, and appends it."""


class Drawer:
    """Draws nodes into a graph, or into the body of a node: then `outer` is the drawer of what is around it."""

    def __init__(
        self,
        rng: np.random.Generator,
        opset: int,
        operators: Sequence[tuple[str, float]],
        draw: Rule,
        outer: Drawer | None = None,
    ) -> None:
        """Draws nodes of `operators`, which have a share each, by calling `draw`."""
        self.rng = rng
        self.favoured: str = outer.favoured if outer else ""  # an element type that is drawn often
        self.opset = opset
        self._operators = operators
        self._draw = draw
        self.graph: DrawnGraph = outer.graph if outer else DrawnGraph(opset)
        self.evaluator: Evaluator = outer.evaluator if outer else Evaluator(opset)
        self.nodes: list[NodeProto] = []
        self.depth: int = outer.depth + 1 if outer else 0
        self.visible: list[str] = list(outer.visible) if outer else []

    # What rules draw with.

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return bool(self.rng.random() < probability)

    def integer(self, low: int, high: int) -> int:
        """An integer from `low` to `high`, both included."""
        return int(self.rng.integers(low, high + 1))

    def choice(self, options: Sequence[Any]) -> Any:
        """One of the options."""
        return options[int(self.rng.integers(0, len(options)))]

    def extent(self, most: int = 197) -> int:
        """An extent of a tensor; odd ones and powers of two."""
        return int(self.choice([extent for extent in _EXTENTS if extent <= most]))

    def shape(self, rank: int | None = None) -> tuple[int, ...]:
        """A shape of few elements."""
        rank = self.choice((0, 1, 2, 2, 3, 3, 4, 4, 5)) if rank is None else rank
        shape = [self.extent() for _ in range(rank)]
        while math.prod(shape) > _LARGEST // 8:
            shape[int(np.argmax(shape))] = self.extent(7)
        return tuple(shape)

    def array(self, name: str) -> Array:
        """The value of a tensor."""
        value = self.graph.values[name]
        assert not isinstance(value, list)
        return value

    def dtype(self, name: str) -> str:
        """The element type of a tensor."""
        return str(self.array(name).dtype.name)

    def leaf(
        self, dtype: str, shape: tuple[int, ...], role: LeafRole = ANY, *, constant: float = 0.5, extreme: float = 0.2
    ) -> str:
        """A new tensor that no node computes: a constant with this probability, else an input of the graph."""
        draw = draw_extreme if self.chance(extreme) else draw_ordinary
        return self._add(draw(self.rng, dtype, shape, role), Leaf(self.chance(constant), role))

    def constant(self, values: Any, dtype: str = "int64") -> str:
        """A new constant."""
        return self._add(np.asarray(values, dtype), Leaf(True))

    def indices(self, shape: tuple[int, ...], size: int, dtype: str = "", *, negative: bool = True) -> str:
        """Indices of an axis of `size` elements, some of them from its end."""
        if not size:
            raise NoSuchValue
        low = -size if negative and self.opset >= 11 and self.chance(0.5) else 0
        return self.leaf(dtype or self.choice(("int64", "int32")), shape, LeafRole(low, size - 1))

    def tensor(
        self,
        dtypes: Collection[str] = FLOATS,
        rank: int | Collection[int] | None = None,
        shape: tuple[int, ...] | None = None,
        where: Callable[[Array], bool] = lambda _: True,
    ) -> str:
        """A tensor that there is, or a new leaf, of one of these types, and of this rank or shape."""
        ranks = (rank,) if isinstance(rank, int) else rank
        if not self.chance(0.12):
            found = [
                name
                for name in self.visible
                if isinstance(value := self.graph.values[name], np.ndarray)
                and value.dtype.name in dtypes
                and (ranks is None or value.ndim in ranks)
                and (shape is None or value.shape == shape)
                and where(value)
            ]
            if found:  # the latest are drawn most often, so that graphs get deep
                return str(found[-1 - int(len(found) * self.rng.random() ** 2)])
        if shape is None:
            shape = self.shape(None if ranks is None else int(self.choice(list(ranks))))
        if not where(np.zeros(shape, self.likely(dtypes))):
            raise NoSuchValue
        return self.leaf(self.likely(dtypes), shape)

    def likely(self, dtypes: Collection[str]) -> str:
        """An element type: float32 most often."""
        weights = {"float32": 12, "float16": 2, "float64": 1, "int64": 2, "int32": 2, "int8": 2, "uint8": 2, "bool": 2}
        options = sorted(dtypes)
        shares = np.array([weights.get(name, 0.5) * (20 if name == self.favoured else 1) for name in options], float)
        return str(options[int(self.rng.choice(len(options), p=shares / shares.sum()))])

    def broadcastable(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """A shape that broadcasts to `shape`."""
        kept = [extent if self.chance(0.6) else 1 for extent in shape]
        return tuple(kept[self.integer(0, len(kept)) :] if self.chance(0.5) else kept)

    def axis(self, rank: int) -> int:
        """An axis, often counted from the end."""
        if not rank:
            raise NoSuchValue
        return self.integer(-rank if self.opset >= 11 else 0, rank - 1)

    def axes(self, rank: int) -> list[int]:
        """Some of the axes, each once."""
        if not rank:
            raise NoSuchValue
        found = self.rng.permutation(rank)[: self.integer(1, rank)]
        return [int(axis) - rank if self.opset >= 11 and self.chance(0.3) else int(axis) for axis in found]

    def body(self) -> Drawer:
        """A drawer for a graph inside of a node; it sees all tensors that this one sees."""
        return Drawer(self.rng, self.opset, self._operators, self._draw, self)

    def parameter(self, name: str, value: Value) -> str:
        """A new input of the body, with the value that it has in the first step."""
        self.graph.values[name] = value
        self.visible.append(name)
        return name

    def fresh(self, stem: str) -> str:
        """A name that no tensor has."""
        self.graph.names += 1
        return f"{stem}{self.graph.names}"

    # How a graph grows.

    def node(
        self, operator: str, inputs: Sequence[str], attributes: Attributes, outputs: int = 1, domain: str = ""
    ) -> list[str]:
        """Append a node if both onnxruntime takes it and its result is defined; returns its outputs.

        Raises:
            Refused: it does not, or the result is too large.
        """
        names = [self.fresh(operator.lower()) for _ in range(outputs)]
        proto = helper.make_node(operator, list(inputs), names, domain=domain, **attributes)
        if undefined(proto, self.graph.values):
            raise Refused("its result is not defined")
        if self.depth and is_overruled(self.evaluator, proto, self.graph.values):
            raise Refused("onnxruntime, which runs the graph around it, computes something else")
        computed, disputed = expected_of(self.evaluator, proto, self.graph.values, both=True)
        for value in computed.values():
            if any(array.size > _LARGEST or array.dtype == object for array in _arrays(value)):
                raise Refused("its result is too large, or no numbers")
        self.graph.values.update(computed)
        self.graph.disputed += disputed
        self.nodes.append(proto)
        self.visible += names
        return names

    def grow(self, nodes: int) -> None:
        """Append so many nodes, if tries suffice."""
        names = [name for name, _ in self._operators]
        shares = np.array([share for _, share in self._operators])
        shares /= shares.sum()
        wanted = len(self.nodes) + nodes
        for _ in range(nodes * _TRIES):
            if len(self.nodes) >= wanted:
                break
            operator = names[int(self.rng.choice(len(names), p=shares))]
            for _ in range(3):
                state = dict(self.graph.values), len(self.nodes), len(self.visible), len(self.graph.disputed)
                try:
                    self._draw(self, operator)
                    break
                except (Refused, NoSuchValue, ValueError, IndexError, OverflowError):
                    self._forget(*state)

    def graph_of(self, name: str, inputs: Sequence[str], outputs: Sequence[str]) -> GraphProto:
        """The nodes as the body of a node."""
        graph = GraphProto(name=name)
        graph.node.extend(self.nodes)
        graph.input.extend(value_info(each, self.graph.values[each]) for each in inputs)
        graph.output.extend(value_info(each, self.graph.values[each]) for each in outputs)
        return graph

    def _add(self, value: Array, leaf: Leaf) -> str:
        name = self.fresh("c" if leaf.constant else "x")
        self.graph.values[name] = value
        self.graph.leaves[name] = leaf
        self.visible.append(name)
        return name

    def _forget(self, values: dict[str, Value], nodes: int, visible: int, disputed: int) -> None:
        for name in self.graph.values.keys() - values.keys():
            del self.graph.values[name]
            self.graph.leaves.pop(name, None)
        del self.nodes[nodes:], self.visible[visible:], self.graph.disputed[disputed:]


def _arrays(value: Value) -> Iterator[Array]:
    if isinstance(value, list):
        for inner in value:
            yield from _arrays(inner)
    else:
        yield np.asarray(value)
