"""Makes one module for all extents of open dimensions from modules that were lowered for some of them.

A pass over a network works on numbers, and most of what it does depends on none of them.  So a network that is lowered
for several extents of its open dimensions is the same graph each time, with other numbers in it.  `generalise` walks
through all of these graphs at once.  Where numbers differ it finds the formula that has them all (`core.extents`), and
writes that in their place, as an expression of one variable for each open dimension.

Modules are compared as TVM writes them to JSON: nodes with fields, which are literals or the numbers of other nodes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import tvm

from kintune.core.extents import Fit, Formula, Quotient, fit_formula

__all__ = ["Generalised", "Points", "Unlike", "generalise"]

_LITERAL_FIELDS = frozenset({"ndim", "iter_type", "kind", "data_alignment", "offset_factor"})
_LEAVES = frozenset({"None", "int", "float", "bool", "ffi.String", "ffi.Tensor", "DataType", "Device"})
_VARIABLES = frozenset({"ir.Var", "relax.expr.DataflowVar"})
_NAMES = {"ir.Var": "name", "s_tir.SBlock": "name_hint"}  # fields whose text tells nothing: names are counted
_NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")


class Unlike(Exception):
    """Modules that were lowered for other extents differ in more than numbers, or in numbers of no known form."""


class Generalised(NamedTuple):
    """A module for all extents, and points at which lowering it tells whether that is so; none where all are known."""

    module: tvm.IRModule
    doubts: tuple[Mapping[str, int], ...] = ()


def generalise(
    modules: Sequence[tvm.IRModule],
    points: Sequence[Mapping[str, int]],
    whole: Mapping[tuple[str, int], Sequence[int]] | None = None,
) -> Generalised:
    """Make the module that is equal to each of `modules` for the extents of its point.

    The graph has variables that are called like the open dimensions.  A kernel has variables of its own: the fewest
    extents of its operands from which all other numbers in it follow.  So kernels that compute the same are equal,
    wherever their operands' extents come from, and whoever calls one knows its variables by its operands.

    What numbers are at other points follows from formulas, of which there may be several: `doubts` of the result has
    points at which the module should be lowered, too, before it is relied on.

    `whole` has shapes of operands, by the kernel's name and the operand's position, that take the place of smaller
    ones: kernels find the same elements at the same indices.

    Raises:
        Unlike: there is none; the text says where they differ.
    """
    graphs = [json.loads(tvm.ir.save_json(module)) for module in modules]
    for (name, position), shape in (whole or {}).items():
        for graph in graphs:
            _reshape_operand(graph, name, position, shape)
    walk = _Walk([graph["nodes"] for graph in graphs], points)
    root = walk.at(tuple(graph["root_index"] for graph in graphs), "module")
    made = {"root_index": root, "nodes": walk.made, "metadata": graphs[0]["metadata"]}
    return Generalised(tvm.ir.load_json(json.dumps(made)), walk.doubts())


def _reshape_operand(graph: dict[str, Any], name: str, position: int, shape: Sequence[int]) -> None:
    """Give an operand of a kernel another shape of the same rank."""
    nodes = graph["nodes"]

    def copied(node: int, **changed: int) -> int:
        nodes.append({**nodes[node], "data": {**nodes[node]["data"], **changed}})
        return len(nodes) - 1

    pairs = nodes[nodes[graph["root_index"]]["data"]["functions"]]["data"]
    called = {
        nodes[nodes[key]["data"]["name_hint"]]["data"]: value
        for key, value in zip(pairs[::2], pairs[1::2], strict=True)
    }
    operand = nodes[nodes[nodes[called[name]]["data"]["params"]]["data"][position]]
    extents = []
    for extent, given in zip(nodes[nodes[operand["data"]["ty"]]["data"]["shape"]]["data"], shape, strict=True):
        nodes.append({"type": "int", "data": given})
        extents.append(copied(extent, value=len(nodes) - 1))
    nodes.append({**nodes[nodes[operand["data"]["ty"]]["data"]["shape"]], "data": extents})
    operand["data"]["ty"] = copied(operand["data"]["ty"], shape=len(nodes) - 1)


class Points:
    """Finds the formulas of numbers that follow from the open dimensions, by their values at some points."""

    def __init__(self, points: Sequence[Mapping[str, int]]) -> None:
        self.points = tuple(points)
        self._fits: dict[tuple[int, ...], Fit | None] = {}
        self._quotients: dict[Quotient, None] = {}

    def formula(self, values: tuple[int, ...]) -> Formula | None:
        """The formula that has these values, one for each point; None where there is none."""
        if values not in self._fits:
            found = self._fits[values] = fit_formula(values, self.points, self._quotients)
            if found is not None:
                self._quotients.update((each, None) for product in found.formula.products for each in product.factors)
        fit = self._fits[values]
        return None if fit is None else fit.formula

    def formula_of(self, values: tuple[int, ...], what: str) -> Formula:
        """The formula that has these values.

        Raises:
            Unlike: there is none; the text says `what` has these values.
        """
        found = self.formula(values)
        if found is None:
            raise Unlike(f"{what}: the numbers {', '.join(map(str, values))}")
        return found

    def doubts(self) -> tuple[Mapping[str, int], ...]:
        """Points that tell formulas apart that have the same numbers so far, each once."""
        points = [fit.doubt for fit in self._fits.values() if fit is not None and fit.doubt is not None]
        return tuple({tuple(point.items()): point for point in points}.values())


class _Scope(Points):
    """What numbers follow from: the open dimensions of the network, or those of a kernel's operands.

    `nodes` and `variables` have the numbers of the nodes that were written already.
    """

    def __init__(self, points: Sequence[Mapping[str, int]]) -> None:
        super().__init__(points)
        self.nodes: dict[tuple[int, ...], int] = {}
        self.variables: dict[str, int] = {}
        self.types: dict[str, str] = {}

    @classmethod
    def of_kernel(cls, extents: Iterable[tuple[tuple[int, ...], str]], count: int) -> _Scope:
        """The fewest of `extents`, which are in the order of the kernel's operands, that give all others.

        Each has its type, which is that of its variable, since TVM binds what stands alone in a shape.
        """
        scope = cls([{}] * count)
        for values, dtype in extents:
            if scope.formula(values) is None:
                name, types = f"d{len(scope.points[0])}", scope.types
                scope = cls([{**point, name: value} for point, value in zip(scope.points, values, strict=True)])
                scope.types = {**types, name: dtype}
        return scope


class _Walk:
    """Walks through all graphs at once, and writes the nodes of the general one."""

    def __init__(self, nodes: Sequence[list[Any]], points: Sequence[Mapping[str, int]]) -> None:
        self._nodes = nodes
        self._nowhere = tuple(next(at for at, node in enumerate(each) if node["type"] == "None") for each in nodes)
        self._network = self._scope = _Scope(points)
        self._paired: dict[int, tuple[int, ...]] = {}
        self._types: dict[str, int] = {}
        self._differing = Points(points)  # all numbers, of which a kernel knows few by the extents of its operands
        self.made: list[Any] = []

    def doubts(self) -> tuple[Mapping[str, int], ...]:
        """Points that tell formulas apart that have the same numbers so far, each once."""
        return self._differing.doubts()

    def at(self, places: tuple[int, ...], path: str) -> int:
        """The number of the node that is made of the nodes at these places."""
        known = self._scope.nodes
        if places not in known:
            known[places] = self._node(places, path)
        return known[places]

    def _node(self, places: tuple[int, ...], path: str) -> int:
        nodes = [each[place] for each, place in zip(self._nodes, places, strict=True)]
        kind = str(nodes[0]["type"])
        if any(node["type"] != kind for node in nodes):
            raise Unlike(f"{path}: {_either([node['type'] for node in nodes])}")
        data = [node.get("data") for node in nodes]
        if kind in _VARIABLES and self._paired.setdefault(places[0], places) != places:
            raise Unlike(f"{path}: another variable")
        if (named := _NAMES.get(kind)) is not None:
            others = [{each: value for each, value in one.items() if each != named} for one in data]
            name = self._made("ffi.String", self._nodes[0][data[0][named]]["data"])
            return self._made(kind, {named: name, **self._fields(others, path)})
        if kind == "tirx.PrimFunc" and self._scope is self._network:
            self._scope = _Scope.of_kernel(self._extents(data), len(data))
            try:
                return self._made(kind, self._fields(data, path))
            finally:
                self._scope = self._network
        if kind == "ir.IntImm":
            return self._number(data, path)
        if kind == "ir.FloatImm":
            return self._whole(data, path)
        if kind == "ffi.String":
            return self._made(kind, self._text(data, path))
        if kind in _LEAVES or not isinstance(data[0], list | dict):
            return self._append({**nodes[0], **({"data": _same(data, path)} if "data" in nodes[0] else {})})
        return self._made(kind, self._fields(data, path))

    def _extents(self, kernels: Sequence[Mapping[str, Any]]) -> Iterator[tuple[tuple[int, ...], str]]:
        """The extents of operands that differ, one for each module, and their types."""
        operands = zip(*(self._parts(nodes, each["params"]) for nodes, each in self._both(kernels)), strict=True)
        for operand in operands:
            kinds = [nodes[each["data"]["ty"]] for nodes, each in self._both(operand)]
            if all(kind["type"] == "tirx.BufferType" for kind in kinds):
                shapes = (self._parts(nodes, kind["data"]["shape"]) for nodes, kind in self._both(kinds))
                for dimension in zip(*shapes, strict=True):
                    if all(each["type"] == "ir.IntImm" for each in dimension):
                        values = self._values([each["data"] for each in dimension])
                        if len(set(values)) > 1:
                            kind = self._nodes[0][dimension[0]["data"]["ty"]]
                            yield values, str(kind["data"]["dtype"])

    def _both(self, parts: Sequence[Any]) -> Iterator[tuple[list[Any], Any]]:
        return zip(self._nodes, parts, strict=True)

    @staticmethod
    def _parts(nodes: list[Any], array: int) -> list[Any]:
        return [nodes[each] for each in nodes[array]["data"]]

    def _values(self, data: Sequence[Mapping[str, int]]) -> tuple[int, ...]:
        return tuple(int(nodes[each["value"]]["data"]) for nodes, each in self._both(data))

    def _fields(self, data: Sequence[Any], path: str) -> Any:
        first = data[0]
        if isinstance(first, list):
            if len({len(each) for each in data}) > 1:
                raise Unlike(f"{path}: {_either([len(each) for each in data])} parts")
            return [self.at(each, f"{path}[{at}]") for at, each in enumerate(zip(*data, strict=True))]
        if any(list(each) != list(first) for each in data):
            raise Unlike(f"{path}: other fields")
        made = {}
        for name in first:
            values = [each[name] for each in data]
            if name == "span":
                made[name] = self._no_span()
            elif name in _LITERAL_FIELDS or not all(type(each) is int for each in values):
                made[name] = _same(values, f"{path}.{name}")
            else:
                made[name] = self.at(tuple(values), f"{path}.{name}")
        return made

    def _no_span(self) -> int:
        return self.at(self._nowhere, "span")

    def _number(self, data: Sequence[Any], path: str) -> int:
        kind = self.at(tuple(each["ty"] for each in data), f"{path}.ty")
        return self._expression(self._formula(self._values(data), path), kind)

    def _whole(self, data: Sequence[Any], path: str) -> int:
        """Numbers of floating point: whole ones that differ, and such shares of one, are made of a formula."""
        values = [each["value"] for each in data]
        kind = self.at(tuple(each["ty"] for each in data), f"{path}.ty")
        if len(set(map(repr, values))) == 1:
            return self._made("ir.FloatImm", {"span": self._no_span(), "ty": kind, "value": values[0]})
        shares = all(isinstance(value, float) and 0 < value <= 1 and value == 1 / round(1 / value) for value in values)
        if not shares and not all(isinstance(value, float) and value.is_integer() for value in values):
            raise Unlike(f"{path}: {_either(values)}")
        found = self._formula(tuple(round(1 / value) if shares else int(value) for value in values), path)
        whole = self._expression(found, self._type("int64"))
        if not shares:
            return self._operation("prim.Cast", kind, value=whole)
        wide = self._type("float64")
        one = self._made("ir.FloatImm", {"span": self._no_span(), "ty": wide, "value": 1.0})
        share = self._operation("prim.Div", wide, a=one, b=self._operation("prim.Cast", wide, value=whole))
        return self._operation("prim.Cast", kind, value=share)

    def _text(self, data: Sequence[str], path: str) -> str:
        """Texts that differ in whole numbers alone have formulas in their places; in JSON these are texts."""
        if len(set(data)) == 1:
            return data[0]
        if len({_NUMBER.sub("0", text) for text in data}) > 1:
            raise Unlike(f"{path}: {_either(data)}")
        numbers = zip(*(map(int, _NUMBER.findall(text)) for text in data), strict=True)
        found = iter([self._formula(values, path) for values in numbers])
        quote = '"' if data[0].startswith(("{", "[")) else ""

        def shown(_: re.Match[str]) -> str:
            formula = next(found)
            return f"{quote}{formula}{quote}" if formula.names else str(formula)

        return _NUMBER.sub(shown, data[0])

    def _formula(self, values: tuple[int, ...], path: str) -> Formula:
        self._differing.formula(values)
        return self._scope.formula_of(values, path)

    def _expression(self, formula: Formula, kind: int) -> int:
        """The node of a formula as an expression of the type `kind`."""
        if not formula.names:
            return self._constant(formula.value({}), kind)
        if (name := formula.alone) and self._scope.types.get(name, "int64") == self.made[kind]["data"]["dtype"]:
            return self._variable(name)
        wide = self._type("int64")
        terms = []
        for product in formula.products:
            factors = [self._quotient(each, wide) for each in product.factors]
            if product.coefficient != 1 or not factors:
                factors.append(self._constant(product.coefficient, wide))
            terms.append(self._joined("prim.Mul", factors, wide))
        total = self._joined("prim.Add", terms, wide)
        return total if self.made[kind]["data"]["dtype"] == "int64" else self._operation("prim.Cast", kind, value=total)

    def _quotient(self, quotient: Quotient, kind: int) -> int:
        terms = []
        for name, step in quotient.steps:
            factors = [self._wide(name), *([self._constant(step, kind)] if step != 1 else [])]
            terms.append(self._joined("prim.Mul", factors, kind))
        if quotient.constant:
            terms.append(self._constant(quotient.constant, kind))
        whole = [self._joined("prim.Add", terms, kind)]
        if quotient.divisor > 1:
            whole.append(self._constant(quotient.divisor, kind))
        return self._joined("prim.FloorDiv", whole, kind)

    def _joined(self, operation: str, operands: Sequence[int], kind: int) -> int:
        total, *others = operands
        for operand in others:
            total = self._operation(operation, kind, a=total, b=operand)
        return total

    def _operation(self, operation: str, kind: int, **operands: int) -> int:
        return self._made(operation, {"span": self._no_span(), "ty": kind, **operands})

    def _wide(self, name: str) -> int:
        """A variable in 64 bits."""
        wide, variable = self._type("int64"), self._variable(name)
        narrow = self._scope.types.get(name, "int64") != "int64"
        return self._operation("prim.Cast", wide, value=variable) if narrow else variable

    def _variable(self, name: str) -> int:
        known = self._scope.variables
        if name not in known:
            kind = self._type(self._scope.types.get(name, "int64"))
            known[name] = self._operation("ir.Var", kind, name=self._made("ffi.String", name))
        return known[name]

    def _constant(self, value: int, kind: int) -> int:
        return self._operation("ir.IntImm", kind, value=self._made("int", value))

    def _type(self, dtype: str) -> int:
        if dtype not in self._types:
            self._types[dtype] = self._made("ir.PrimType", {"span": self._no_span(), "dtype": dtype})
        return self._types[dtype]

    def _made(self, kind: str, data: Any) -> int:
        return self._append({"type": kind, "data": data})

    def _append(self, node: Any) -> int:
        self.made.append(node)
        return len(self.made) - 1


def _same(values: Sequence[Any], path: str) -> Any:
    if any(value != values[0] for value in values):
        raise Unlike(f"{path}: {_either(values)}")
    return values[0]


def _either(values: Iterable[Any]) -> str:
    return " or ".join(dict.fromkeys(map(str, values)))
