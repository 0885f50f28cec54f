"""What a kernel call of a compiled network computes: the nodes of the user's graph, and how much work it is."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping

import msgspec

from kintune.core.candidate import FULL_PRECISION

__all__ = ["CallRecord", "SourceNode", "common_folder", "own_kernel", "readable", "title_of", "told_apart"]

_NEARLY_ALL = 0.8  # share of the names that a common folder has

_CHANGED = re.compile(r"(_prepacked|_in_place\d*|_bf16(_\d+)+)+$")
"""What is added to the name of a kernel that reads packed weights, parts of larger tensors, or tensors kept in bf16."""

_WORD = re.compile(r"(?:[a-z]+[123]d|[a-z]+)(?:_matmul)?")

_SHAPE_ONLY = frozenset(
    {
        *("Cast", "Constant", "Dropout", "Expand", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose"),
        *("Unsqueeze", "QuantizeLinear", "DequantizeLinear"),
        *("clone", "contiguous", "detach", "dropout", "expand", "flatten", "permute", "reshape", "squeeze"),
        *("getitem", "t", "to", "_to_copy", "transpose", "unsqueeze", "view", "unsafe_view", "_unsafe_view"),
    }
)
"""Operators that are no part of a title where their kernel computes something else as well."""

_SHORT = {"BatchNormalization": "BN", "_native_batch_norm_legit_no_training": "batch_norm"}
"""Long names of operators that are usually fused."""

_MAIN = (
    *("Conv", "Gemm", "MatMul", "Pool", "Softmax", "Norm", "Reduce", "Einsum", "LSTM", "GRU", "RNN"),
    *("conv", "linear", "mm", "matmul", "pool", "softmax", "norm", "attention", "lstm", "gru", "rnn"),
)
"""Parts of the names of operators after which a kernel is titled, where it has one."""


class SourceNode(msgspec.Struct, frozen=True):
    """A node of the user's graph: its name, or that of its first result, and its operator ("Conv")."""

    name: str
    op: str


class CallRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One kernel call of an execution plan; `place` is the number of its operation there.

    `nodes` are the user's nodes that it computes, in their order, with those that were folded into its weights or that
    only change a shape; `operators` are the compiler's.  If `inserted`, the compiler added the call for `nodes`, which
    another kernel computes: it changes a layout, for instance.  `flops` is what one call computes, `nbytes` what it
    reads and writes at least, `weight_bytes` the size of weights among that.  `precision` is the precision of its
    multiplications; "fp32" stands for the model's own types.  `program` names the hand-written program of the kernel,
    with version and variant.
    """

    place: int
    kernel: str
    nodes: tuple[SourceNode, ...] = ()
    operators: tuple[str, ...] = ()
    inserted: bool = False
    flops: float = 0.0
    nbytes: float = 0.0
    weight_bytes: float = 0.0
    precision: str = FULL_PRECISION
    program: str = ""


def title_of(call: CallRecord) -> str:
    """A call in one line: its main node by name, and the operators fused with it: `layer1/conv + Add + Relu`.

    The kernel's own name where no node is known.
    """
    if not call.nodes:
        return call.kernel
    computing = [node for node in call.nodes if node.op not in _SHAPE_ONLY] or list(call.nodes)
    main = next((node for node in computing if any(part in node.op for part in _MAIN)), computing[0])
    if call.inserted:
        return f"{' + '.join(call.operators) or 'copy'} for {main.name}"
    others = [_SHORT.get(node.op, node.op) for node in computing if node is not main]
    return " + ".join([_with_operator(main), *_counted(others)])


def _with_operator(node: SourceNode) -> str:
    """The node's name, with its operator where the name does not tell it."""
    return node.name if node.op.lower() in node.name.lower() else f"{node.name} ({node.op})"


def _counted(operators: list[str]) -> list[str]:
    """Operators in order; those that follow one another several times are written once, with their number."""
    runs: list[tuple[str, int]] = []
    for name in operators:
        if runs and runs[-1][0] == name:
            runs[-1] = (name, runs[-1][1] + 1)
        else:
            runs.append((name, 1))
    return [name if number == 1 else f"{number} {name}" for name, number in runs]


def common_folder(names: Collection[str]) -> str:
    """Return the longest path, with a slash at its end, that at least 80 % of the names begin with; may be empty."""
    shared = ""
    while len(names) > 1:
        deeper = Counter(name[: at + 1] for name in names if (at := name.find("/", len(shared))) >= 0)
        found, count = max(deeper.items(), key=lambda item: item[1], default=("", 0))
        if not found.startswith(shared) or count < _NEARLY_ALL * len(names):
            break
        shared = found
    return shared


def own_kernel(name: str) -> str:
    """The name of a kernel as its program has it, without what was added where it reads its operands otherwise."""
    return _CHANGED.sub("", name)


def readable(kernel: str) -> str:
    """A kernel's name as its operators: `fused_conv2d24_add4_relu` is "conv2d + add + relu".

    What follows "@" tells the combination of shapes, and is kept.
    """
    own, at, shapes = kernel.partition("@")
    kept = _WORD.findall(own.removeprefix("fused_").replace("batch_matmul", "bmm"))
    words = " + ".join("batch matmul" if word == "bmm" else word for word in kept) or own
    return f"{words} ({shapes})" if at else words


def told_apart(titles: Mapping[str, tuple[str, ...]], others: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the titles by key; `others[key]` is added to a first title that several keys have."""
    counts = Counter(each[0] for each in titles.values() if each)
    return {
        key: (f"{each[0]}: {others[key]}", *each[1:]) if each and counts[each[0]] > 1 else each
        for key, each in titles.items()
    }
