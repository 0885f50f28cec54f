"""Looks at an uploaded file and says what it is: `python -m kintune.service.upload_inspection FILE`, under limits of
its own.

It imports no compiler, so that it answers at once.  Whether every operator can be compiled is found out when a job
begins.
"""

from __future__ import annotations

import resource
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from kintune.hardware.cores import memory_mb
from kintune.service.model_store import Findings, Input

__all__ = ["examine", "main", "memory_limit_mb"]
_MOST_MEMORY_MB = 12 * 1024
_MEMORY_SHARE = 1 / 4  # of the machine's, at most; two are at work at once
_CPU_S = 55
_DEEPEST = 64  # graphs inside graphs
_MOST_NODES = 100_000
_MOST_VALUES, _MOST_DIMENSIONS, _MOST_OPERATORS = 1000, 64, 200
_LONGEST_NAME = 64  # of a dimension
_PICKLES = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"PK\x03\x04")


def memory_limit_mb() -> int:
    """How many MiB an inspection may map on this machine."""
    return min(_MOST_MEMORY_MB, int(memory_mb() * _MEMORY_SHARE))


def examine(path: Path) -> Findings:
    """Returns the findings about a file; raises nothing for what is in it."""
    with path.open("rb") as file:
        beginning = file.read(8)
    if beginning.startswith(_PICKLES):
        return Findings(problem="it is a PyTorch file or an archive, not ONNX; export it with torch.onnx.export first")
    if not beginning:
        return Findings(problem="the file is empty")
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        model = onnx.load_model(str(path), load_external_data=False)
    except (DecodeError, ValueError, RecursionError) as error:
        return Findings(problem=f"it is no ONNX file ({' '.join(str(error).split())[:120] or 'it cannot be read'})")
    return _describe(model)


def _describe(model: Any) -> Findings:
    from kintune.models.stored_size import misfit

    graph = model.graph
    if not graph.node or not graph.output:
        return Findings(problem="it is no ONNX file, or one without a network in it")
    operators: Counter[str] = Counter()
    elements = nodes = 0
    queue = [(graph, 0)]
    while queue:
        inner, depth = queue.pop()
        if depth > _DEEPEST:
            return Findings(problem=f"its graphs are nested more than {_DEEPEST} deep, which is the limit here")
        nodes += len(inner.node)
        if nodes > _MOST_NODES:
            return Findings(problem=f"it has more than {_MOST_NODES:,} nodes, which is the limit here")
        for tensor in inner.initializer:
            elements += _count(tensor.dims)
        for node in inner.node:
            name = f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type
            operators[name[:64]] += 1
            for attribute in node.attribute:
                queue += [(each, depth + 1) for each in (*attribute.graphs, attribute.g) if each.node]
    for tensor in _tensors(model):
        if tensor.data_location == 1 or tensor.external_data:
            return Findings(problem="its weights lie in other files; save it as one file and upload that")
        if problem := misfit(tensor):
            return Findings(problem=f"its weight {tensor.name[:256]!r} is damaged: {problem[:300]}")
    if max(len(graph.input), len(graph.output)) > _MOST_VALUES + len(graph.initializer):
        return Findings(problem=f"it has more than {_MOST_VALUES} inputs or outputs")
    weights = {tensor.name for tensor in graph.initializer}
    for value in graph.input:
        if (kind := _kind(value)) is not None:
            name = value.name[:256]
            return Findings(
                problem=f"its input {name} is not a tensor ({kind}); inputs are arrays of numbers or strings"
            )
    inputs = tuple(_input(value) for value in graph.input if value.name not in weights)[:_MOST_VALUES]
    outputs = tuple(_input(value) for value in graph.output[:_MOST_VALUES])
    if (needed_mb := _elements_of((*inputs, *outputs)) >> 20) > memory_mb():
        return Findings(
            problem=f"its inputs and outputs have {needed_mb:,} million elements or more, for which the "
            f"{memory_mb():,} MB of this machine do not suffice"
        )
    return Findings(
        inputs=inputs,
        outputs=outputs,
        operators=dict(operators.most_common(_MOST_OPERATORS)),
        parameters=elements,
    )


def _elements_of(values: Sequence[Input]) -> int:
    """Returns the number of elements of all inputs and outputs, with one for each dimension that is open."""
    return sum(_count([1 if extent is None else extent for extent in value.shape]) for value in values)


def _tensors(model: Any) -> Iterator[Any]:
    """All tensors of its graphs, functions, attributes and training information."""
    from google.protobuf.message import Message

    queue = [model]
    while queue:
        message = queue.pop()
        if message.DESCRIPTOR.name == "TensorProto":
            yield message
            continue
        for field, value in message.ListFields():
            if field.message_type is not None:
                queue += [value] if isinstance(value, Message) else value


def _kind(value: Any) -> str | None:
    """Returns the kind of an input or output that is no tensor; None if it is one, or the file does not say."""
    kind = value.type.WhichOneof("value")
    return None if kind in (None, "tensor_type") else str(kind).removesuffix("_type")


def _input(value: Any) -> Input:
    import onnx

    if (kind := _kind(value)) is not None:
        return Input(value.name[:256], (), kind)
    tensor = value.type.tensor_type
    try:
        string = tensor.elem_type == onnx.TensorProto.STRING
        dtype = "string" if string else str(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    except (KeyError, ValueError, TypeError):
        dtype = "unknown"
    if len(tensor.shape.dim) > _MOST_DIMENSIONS:
        return Input(value.name[:256], (), "unknown")
    shape = tuple(d.dim_value if d.WhichOneof("value") == "dim_value" else None for d in tensor.shape.dim)
    names = tuple(d.dim_param[:_LONGEST_NAME] for d in tensor.shape.dim)
    return Input(value.name[:256], shape, dtype, names if any(names) else ())


def _count(dims: Sequence[int]) -> int:
    total = 1
    for extent in dims:
        total *= max(0, extent)
    return total


def main(argv: Sequence[str] | None = None) -> None:
    """Print what is found, as JSON; nothing where memory or time do not suffice."""
    (path,) = sys.argv[1:] if argv is None else argv
    memory = memory_limit_mb() << 20
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_S, _CPU_S + 1))  # at the first SIGXCPU ends it, at the second SIGKILL
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        findings = examine(Path(path))
    except MemoryError:
        sys.exit(1)
    sys.stdout.buffer.write(msgspec.json.encode(findings))


if __name__ == "__main__":
    main()
