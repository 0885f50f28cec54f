"""Rules for matrix products."""

from __future__ import annotations

from kintune_lab.fuzz.drawing import Attributes, Drawer, Rule
from kintune_lab.fuzz.values import FLOATS

__all__ = ["RULES", "factors"]


def factors(d: Drawer, dtypes: tuple[str, ...], other: tuple[str, ...] = ()) -> tuple[str, str]:
    """Two operands of a matrix product."""
    a = d.tensor(dtypes, rank=(1, 2, 2, 3, 3, 4))
    *batch, depth = d.array(a).shape
    columns = d.extent()
    b_types = other or (d.dtype(a),)
    match d.integer(0, 3) if len(batch) > 1 else d.integer(1, 3):
        case 0:
            b = d.tensor(b_types, shape=(*d.broadcastable(tuple(batch[:-1])), depth, columns))
        case 1:
            b = d.tensor(b_types, rank=(1, 2), where=lambda v: v.shape[0] == depth)
        case _:
            b = d.tensor(b_types, shape=(depth, columns))
    return a, b


def _matmul(d: Drawer, operator: str) -> None:
    d.node(operator, factors(d, (*FLOATS, "int32", "int64") if d.opset >= 9 else FLOATS), {})


def _gemm(d: Drawer, operator: str) -> None:
    a = d.tensor(("float32", "float32", "float64", "float16"), rank=2)
    attributes: Attributes = {"transA": d.integer(0, 1), "transB": d.integer(0, 1)}
    rows, depth = d.array(a).shape[:: -1 if attributes["transA"] else 1]
    columns = d.extent()
    dtype = (d.dtype(a),)
    b = d.tensor(dtype, shape=(columns, depth) if attributes["transB"] else (depth, columns))
    inputs = [a, b]
    if d.opset < 11 or d.chance(0.6):
        inputs.append(d.tensor(dtype, shape=d.broadcastable((rows, columns))))
    for name in ("alpha", "beta"):
        if d.chance(0.4):
            attributes[name] = d.choice((0.5, 2.0, 0.0, -1.0) if name == "beta" else (0.5, 2.0, -1.0))
    d.node(operator, inputs, attributes)


def _einsum(d: Drawer, operator: str) -> None:
    a = d.tensor(("float32", "float32", "float64"), rank=(2, 3))
    letters = "abcd"[: d.array(a).ndim]
    extents = dict(zip(letters, d.array(a).shape, strict=True)) | {"e": d.extent(17)}
    terms, inputs = [letters], [a]
    for _ in range(d.choice((0, 1, 1, 1, 2))):
        terms.append("".join(str(each) for each in d.rng.permutation(list(letters + "e"))[: d.integer(1, 3)]))
        inputs.append(d.tensor((d.dtype(a),), shape=tuple(extents[letter] for letter in terms[-1])))
    free = sorted(set("".join(terms)))
    kept = "".join(str(each) for each in d.rng.permutation(free)[: d.integer(0, len(free))])
    dots = "..." if d.chance(0.15) else ""
    result = f"->{dots}{kept}" if d.chance(0.85) else ""
    d.node(operator, inputs, {"equation": ",".join(dots + term for term in terms) + result})


RULES: dict[str, Rule] = {
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Einsum": _einsum,
}
