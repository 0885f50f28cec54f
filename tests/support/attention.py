"""Attention in the spellings of exporters, as networks of the compiler's operators, and what it computes."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Spelling", "arrays", "expected", "network"]

Array = NDArray[Any]


class Spelling(NamedTuple):
    """How attention is written.

    `layout` of the inputs: "heads" (B, H, S, D), "tokens" (B, S, H*D), "merged" (B*H, S, D) or "fused" (B, S, 3*H*D).
    `scaling`: "none", "after", "divided", "query", "both".  `mask`: "none", "columns" (B, 1, 1, T), "rank 2" (S, T),
    "full" (B, H, S, T), "boolean" (B, 1, S, T), "filled" (its opposite), "two", "causal", "causal where", "subtracted"
    (B, 1, 1, T), "causal subtracted", "padded" (B, 1, 1, T: the first columns of all but the first of the batch are
    excluded by `low`) or "padded where" (the same as booleans).
    With `triangle` a constant causal mask of `fill` stands "before" or "after" the mask: a `where` if `chosen`.
    `softmax`: "operator" or "written out".  `result`: "heads" or "tokens".  `twist` makes it something else.
    Where `guarded`, weights that are not numbers become zeros, as PyTorch's exporter for ONNX writes it.
    """

    batch: int = 2
    heads: int = 3
    groups: int = 3
    rows: int = 5
    columns: int = 7
    depth: int = 4
    width: int = 6
    layout: str = "heads"
    scaling: str = "after"
    mask: str = "none"
    low: float = -1e9
    softmax: str = "operator"
    result: str = "tokens"
    twist: str = ""
    guarded: bool = False
    triangle: str = ""
    fill: float = -np.inf
    chosen: bool = False

    @property
    def is_attention(self) -> bool:
        """Whether one kernel can compute it."""
        return not self.twist and self.columns > 1

    def settled(self) -> Spelling:
        """The nearest spelling that can be written."""
        spelling = self
        if spelling.layout == "fused":
            spelling = spelling._replace(columns=self.rows, width=self.depth, groups=self.heads)
        if spelling.layout == "merged":
            spelling = spelling._replace(groups=self.heads)
        if (spelling.mask.startswith("causal") or spelling.triangle) and spelling.columns < spelling.rows:
            spelling = spelling._replace(columns=spelling.rows)
        return spelling


def arrays(spelling: Spelling, seed: int = 1) -> dict[str, Array]:
    """The network's inputs by name: query, key and value, or all three fused, and masks."""
    s, draw = spelling, np.random.default_rng(seed)
    query = draw.standard_normal((s.batch, s.heads, s.rows, s.depth), np.float32)
    key = draw.standard_normal((s.batch, s.groups, s.columns, s.depth), np.float32)
    value = draw.standard_normal((s.batch, s.groups, s.columns, s.width), np.float32)
    if s.layout == "fused":
        parts = [part.transpose(0, 2, 1, 3).reshape(s.batch, s.rows, -1) for part in (query, key, value)]
        found = {"fused": np.concatenate(parts, -1)}
    elif s.layout == "tokens":
        found = {
            name: part.transpose(0, 2, 1, 3).reshape(s.batch, part.shape[2], -1)
            for name, part in (("query", query), ("key", key), ("value", value))
        }
    elif s.layout == "merged":
        found = {
            name: part.reshape(-1, *part.shape[2:]) for name, part in (("query", query), ("key", key), ("value", value))
        }
    else:
        found = {"query": query, "key": key, "value": value}
    seen = draw.random((s.batch, 1, s.rows, s.columns)) < 0.7
    low = np.float32(s.low)
    if s.mask.startswith("padded"):
        padded = np.arange(s.columns) < 2 * np.arange(s.batch)[:, None, None, None]
        found["mask"] = ~padded if s.mask == "padded where" else np.where(padded, low, np.float32(0))
    if s.mask in ("columns", "two", "subtracted"):
        found["mask"] = np.where(seen[:, :, :1], np.float32(0), -low if s.mask == "subtracted" else low)
    if s.mask == "rank 2":
        found["mask"] = draw.standard_normal((s.rows, s.columns), np.float32)
    if s.mask in ("full", "two"):
        shape = (s.batch, s.heads, s.rows, s.columns)
        found["bias"] = draw.standard_normal(shape, np.float32)
    if s.mask in ("boolean", "filled"):
        found["seen"] = seen if s.mask == "boolean" else ~seen
    return {name: np.ascontiguousarray(array) for name, array in found.items()}


def _split(spelling: Spelling, inputs: dict[str, Array]) -> tuple[Array, Array, Array]:
    """Query, key and value as (B, H, rows, depth)."""
    s = spelling
    if s.layout == "fused":
        parts = np.split(inputs["fused"], 3, -1)
    else:
        parts = [inputs[name] for name in ("query", "key", "value")]
    heads = (s.heads, s.groups, s.groups)
    if s.layout in ("fused", "tokens"):
        parts = [
            part.reshape(s.batch, part.shape[1], number, -1).transpose(0, 2, 1, 3)
            for part, number in zip(parts, heads, strict=True)
        ]
    elif s.layout == "merged":
        parts = [part.reshape(s.batch, s.heads, *part.shape[1:]) for part in parts]
    query, *shared = parts
    key, value = (np.repeat(part, s.heads // s.groups, 1) for part in shared)
    return query, key, value


def expected(spelling: Spelling, inputs: dict[str, Array]) -> Array:
    """What attention gives, computed in double precision."""
    s = spelling
    query, key, value = (part.astype(np.float64) for part in _split(s, inputs))
    scores = query @ key.swapaxes(-1, -2)
    if s.scaling != "none":
        scores = scores / math.sqrt(s.depth)
    if s.triangle == "before":
        scores = _triangle(s, scores)
    for name in ("mask", "bias"):
        if name in inputs and inputs[name].dtype == bool:
            scores = np.where(inputs[name], scores, s.low)
        elif name in inputs:
            moved = -inputs[name] if s.mask == "subtracted" else inputs[name]
            with np.errstate(over="ignore"):
                scores = (scores.astype(np.float32) + moved).astype(np.float64)
    if "seen" in inputs:
        seen = inputs["seen"] if s.mask == "boolean" else ~inputs["seen"]
        scores = np.where(seen, scores, s.low)
    if s.mask.startswith("causal"):
        scores = np.where(_causal(s), scores, -np.inf)
    if s.triangle == "after":
        scores = _triangle(s, scores)
    with np.errstate(invalid="ignore", over="ignore"):
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        weights = powers / powers.sum(-1, keepdims=True)
        result = (np.where(np.isnan(weights), 0, weights) if s.guarded else weights) @ value
    if s.result == "tokens":
        result = result.transpose(0, 2, 1, 3).reshape(s.batch, s.rows, -1)
    elif s.layout == "merged":
        result = result.reshape(-1, s.rows, s.width)
    return np.asarray(result.astype(np.float32))


def _triangle(spelling: Spelling, scores: Array) -> Array:
    s = spelling
    if s.chosen:
        return np.where(_causal(s), scores, s.fill)
    with np.errstate(over="ignore"):
        added = np.where(_causal(s), np.float32(0), np.float32(s.fill))
        return (scores.astype(np.float32) + added).astype(np.float64)


def _causal(spelling: Spelling) -> Array:
    s = spelling
    return np.tril(np.ones((s.rows, s.columns), bool), s.columns - s.rows)


class _Writer:
    """Emits the operators of a spelling."""

    def __init__(self, spelling: Spelling, builder: Any) -> None:
        self._spelling, self._builder = spelling, builder

    def __call__(self, expression: Any) -> Any:
        return self._builder.emit(expression)

    def heads(self, part: Any, number: int) -> Any:
        """(B, S, N*D) as (B, N, S, D)."""
        from tvm import relax

        batch, rows, width = (int(extent) for extent in part.ty.shape)
        split = self(relax.op.reshape(part, (batch, rows, number, width // number)))
        return self(relax.op.permute_dims(split, [0, 2, 1, 3]))

    def operands(self, variables: dict[str, Any]) -> tuple[Any, Any, Any]:
        from tvm import relax

        s = self._spelling
        if s.layout == "fused":
            split = self(relax.op.split(variables["fused"], 3, -1))
            query, key, value = (self(relax.TupleGetItem(split, i)) for i in range(3))
        else:
            query, key, value = (variables[name] for name in ("query", "key", "value"))
        if s.layout in ("fused", "tokens"):
            query = self.heads(query, s.heads)
            key, value = self.heads(key, s.groups), self.heads(value, s.groups)
        if s.groups != s.heads:
            key, value = self.shared(key), self.shared(value)
        return query, key, value

    def shared(self, part: Any) -> Any:
        """Each head of keys or values for its group of query heads."""
        from tvm import relax

        batch, groups, rows, width = (int(extent) for extent in part.ty.shape)
        times = self._spelling.heads // groups
        spread = self(relax.op.expand_dims(part, 2))
        spread = self(relax.op.broadcast_to(spread, (batch, groups, times, rows, width)))
        return self(relax.op.reshape(spread, (batch, groups * times, rows, width)))

    def scores(self, query: Any, key: Any) -> Any:
        from tvm import relax

        s = self._spelling
        root = math.sqrt(s.depth)
        if s.scaling == "query":
            query = self(relax.op.multiply(query, relax.const(1 / root, "float32")))
        if s.scaling == "both":
            query = self(relax.op.multiply(query, relax.const(1 / math.sqrt(root), "float32")))
            key = self(relax.op.multiply(key, relax.const(1 / math.sqrt(root), "float32")))
        rank = len(key.ty.shape)
        turned = self(relax.op.permute_dims(key, [*range(rank - 2), rank - 1, rank - 2]))
        scores = self(relax.op.matmul(query, turned))
        if s.scaling == "after":
            scores = self(relax.op.multiply(scores, relax.const(np.full((1,), 1 / root, np.float32))))
        if s.scaling == "divided":
            scores = self(relax.op.divide(scores, relax.const(root, "float32")))
        return scores

    def masked(self, scores: Any, variables: dict[str, Any]) -> Any:
        from tvm import relax

        s = self._spelling
        merged = s.layout == "merged" and s.mask not in ("none", "rank 2") and not s.mask.startswith("causal")
        if merged:
            scores = self(relax.op.reshape(scores, (s.batch, s.heads, s.rows, s.columns)))
        if s.triangle == "before":
            scores = self.triangle(scores)
        for name in ("mask", "bias"):
            if s.mask == "padded where" and name == "mask":
                scores = self(relax.op.where(variables[name], scores, relax.const(s.low, "float32")))
            elif name in variables:
                combine = relax.op.subtract if s.mask == "subtracted" else relax.op.add
                scores = self(combine(scores, variables[name]))
        low = relax.const(s.low, "float32")
        if s.mask == "boolean":
            scores = self(relax.op.where(variables["seen"], scores, low))
        if s.mask == "filled":
            scores = self(relax.op.where(variables["seen"], low, scores))
        if s.mask == "causal":
            scores = self(relax.op.add(scores, relax.const(np.where(_causal(s), np.float32(0), np.float32(-np.inf)))))
        if s.mask == "causal subtracted":
            hidden = relax.const(np.where(_causal(s), np.float32(0), np.float32(np.inf)))
            scores = self(relax.op.subtract(scores, hidden))
        if s.mask == "causal where":
            scores = self(relax.op.where(relax.const(_causal(s)), scores, relax.const(-np.inf, "float32")))
        if s.triangle == "after":
            scores = self.triangle(scores)
        return self(relax.op.reshape(scores, (s.batch * s.heads, s.rows, s.columns))) if merged else scores

    def triangle(self, scores: Any) -> Any:
        from tvm import relax

        seen, fill = _causal(self._spelling), np.float32(self._spelling.fill)
        if self._spelling.chosen:
            return self(relax.op.where(relax.const(seen), scores, relax.const(fill)))
        return self(relax.op.add(scores, relax.const(np.where(seen, np.float32(0), fill))))

    def weights(self, scores: Any) -> Any:
        from tvm import relax

        s = self._spelling
        axis = -2 if s.twist == "axis" else -1
        if s.softmax == "operator":
            return self(relax.op.nn.softmax(scores, axis))
        most = self(relax.op.max(scores, [axis], keepdims=True))
        powers = self(relax.op.exp(self(relax.op.subtract(scores, most))))
        return self(relax.op.divide(powers, self(relax.op.sum(powers, [axis], keepdims=True))))


def network(spelling: Spelling, inputs: dict[str, Array]) -> Any:
    """The module whose `main` has these inputs, in order."""
    import tvm
    from tvm import relax

    s, builder = spelling, relax.BlockBuilder()
    write = _Writer(s, builder)
    variables = {name: relax.Var(name, relax.TensorType(a.shape, str(a.dtype))) for name, a in inputs.items()}
    with builder.function("main", list(variables.values())):
        with builder.dataflow():
            query, key, value = write.operands(variables)
            scores = write.scores(query, key)
            if s.twist == "scale of an input":
                scores = write(relax.op.multiply(scores, write(relax.op.max(query, keepdims=False))))
            scores = write.masked(scores, variables)
            weights = write.weights(scores)
            if s.guarded:
                zero = relax.const(0, "float32")
                weights = write(relax.op.where(write(relax.op.isnan(weights)), zero, weights))
            results = []
            if s.twist == "scores are read":
                results.append(scores)
            if s.twist == "weights are read":
                results.append(weights)
            if s.twist == "dropout":
                weights = write(relax.op.multiply(weights, write(relax.op.abs(weights))))
            found = write(relax.op.matmul(weights, value))
            if s.result == "tokens":
                if s.layout == "merged":
                    found = write(relax.op.reshape(found, (s.batch, s.heads, s.rows, s.width)))
                found = write(relax.op.permute_dims(found, [0, 2, 1, 3]))
                found = write(relax.op.reshape(found, (s.batch, s.rows, s.heads * s.width)))
            results.append(found)
            done = builder.emit_output(relax.Tuple(results) if len(results) > 1 else write(relax.op.negative(found)))
        builder.emit_func_output(done)
    module = builder.get()
    return tvm.IRModule(dict(module.functions_items()))
