"""Einsum: of two operands, a matrix product, which later passes and Kintune's own programs know; of one, a sum.

TVM's own kernel, which sums over all axes in the order of the equation, computes the rest: more operands, an ellipsis,
a letter twice in one operand, sizes that are broadcast, and integers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from tvm import relax, topi

from kintune.models.converters.node import Node
from kintune.models.converters.registration import OnnxOperator
from kintune.models.expressions import HALVES, dtype_of, is_float, shape_of

__all__ = ["OPERATORS"]


class _Term(NamedTuple):
    """A tensor and the letter of each of its axes."""

    tensor: Any
    letters: str


def _einsum(node: Node) -> Any:
    operands = [operand for operand in node.operands if operand is not None]
    equation = str(node.attributes["equation"]).replace(" ", "")
    dtype = dtype_of(operands[0])
    _check(equation, operands)
    plain = _plain(equation, operands)
    if plain is None or not is_float(dtype):
        summed = node.builder.call_te(topi.einsum, equation, *map(node.wide, operands))
        return node.cast(node.emit(summed), dtype)
    letters, result = plain
    terms = [_Term(node.wide(tensor), axes) for tensor, axes in zip(operands, letters, strict=True)]
    others = [set(letters[1]), set(letters[0])] if len(terms) == 2 else [set()]
    terms = [
        _summed(node, term, [axis for axis in term.letters if axis not in result and axis not in other])
        for term, other in zip(terms, others, strict=True)
    ]
    found = terms[0] if len(terms) == 1 else _product(node, terms[0], terms[1], result)
    return node.cast(_arranged(node, found, result), dtype) if dtype in HALVES else _arranged(node, found, result)


def _check(equation: str, operands: Sequence[Any]) -> None:
    """Check that the equation fits the operands: TVM's kernel does not, and reads where nothing is.

    Raises:
        ValueError: it does not.
    """
    given, _, result = equation.partition("->")
    terms = given.split(",")
    if len(terms) != len(operands):
        raise ValueError(f"the equation {equation!r} is for {len(terms)} tensors, and there are {len(operands)}")
    for term, operand in zip(terms, operands, strict=True):
        letters, rank = term.replace("...", "", 1), len(shape_of(operand))
        fits = len(letters) <= rank if "..." in term else len(letters) == rank
        if not fits or not all(letter.isalpha() and letter.isascii() for letter in letters):
            raise ValueError(f"{term!r} of the equation {equation!r} does not name the {rank} axes of its tensor")
    letters = result.replace("...", "", 1)
    if not set(letters) <= set(given) - {".", ","} or len(set(letters)) != len(letters):
        raise ValueError(f"the result of the equation {equation!r} has an axis twice, or one that no tensor has")


def _plain(equation: str, operands: Sequence[Any]) -> tuple[list[str], str] | None:
    """The letters of the operands and of the result; None where TVM's kernel computes the equation."""
    given, arrow, result = equation.partition("->")
    letters = given.split(",")
    if "." in equation or len(letters) != len(operands) or len(letters) > 2:
        return None
    if any(len(set(each)) != len(each) for each in (*letters, result)):
        return None
    sizes: dict[str, int] = {}
    for each, operand in zip(letters, operands, strict=True):
        shape = shape_of(operand)
        if len(shape) != len(each) or 0 in shape:
            return None
        if any(sizes.setdefault(letter, size) != size for letter, size in zip(each, shape, strict=True)):
            return None  # an axis of size 1 is broadcast
    if not arrow:
        together = "".join(letters)
        result = "".join(sorted(letter for letter in set(together) if together.count(letter) == 1))
    return (letters, result) if set(result) <= set(sizes) else None


def _summed(node: Node, term: _Term, letters: Sequence[str]) -> _Term:
    """The term summed over the axes of these letters."""
    if not letters:
        return term
    axes = [term.letters.index(letter) for letter in letters]
    kept = "".join(letter for letter in term.letters if letter not in letters)
    return _Term(node.emit(relax.op.sum(term.tensor, axes)), kept)


def _product(node: Node, first: _Term, second: _Term, result: str) -> _Term:
    """The matrix product of two terms, or their element-wise product where no letter is summed."""
    both = [letter for letter in first.letters if letter in second.letters]
    summed = "".join(letter for letter in both if letter not in result)
    if not summed:
        spread = [_spread(node, term, result) for term in (first, second)]
        return _Term(node.emit(relax.op.multiply(*spread)), result)
    batch = "".join(letter for letter in result if letter in both)
    rows, columns = ("".join(each for each in result if each in term.letters and each not in both)
                     for term in (first, second))  # fmt: skip
    sizes = {**_sizes(first), **_sizes(second)}

    def matrix(term: _Term, *axes: str) -> Any:
        """The tensor with the batch's axes, and each group of axes as one."""
        shape = [*(sizes[letter] for letter in batch), *(_extent(sizes, group) for group in axes)]
        return node.reshape(_arranged(node, term, "".join((batch, *axes))), shape)

    product = node.emit(relax.op.matmul(matrix(first, rows, summed), matrix(second, summed, columns)))
    letters = batch + rows + columns
    return _Term(node.reshape(product, [sizes[letter] for letter in letters]), letters)


def _sizes(term: _Term) -> dict[str, int]:
    return dict(zip(term.letters, shape_of(term.tensor), strict=True))


def _extent(sizes: dict[str, int], letters: str) -> int:
    return math.prod(sizes[letter] for letter in letters)


def _spread(node: Node, term: _Term, result: str) -> Any:
    """The tensor with the axes of the result; those that it does not have are of size 1."""
    sizes = _sizes(term)
    order = "".join(letter for letter in result if letter in sizes)
    return node.reshape(_arranged(node, term, order), [sizes.get(letter, 1) for letter in result])


def _arranged(node: Node, term: _Term, order: str) -> Any:
    return node.permute(term.tensor, [term.letters.index(letter) for letter in order])


OPERATORS = (OnnxOperator("Einsum", _einsum),)
