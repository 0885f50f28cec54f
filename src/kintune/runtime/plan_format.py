"""Writes an execution plan as the C runtime reads it: `runtime/native/internal.h` has the records, `plan.c` the rules.

A header, then sections of records, little-endian, each padded to a multiple of 8 bytes; names are offsets into the last
section, a text of strings that end in NUL.  It does not import TVM.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kintune.core.execution_plan import Branch, Copy, ExecutionPlan, Jump, KernelCall, Operation, PlannedTensor

__all__ = ["VERSION", "element_kind", "encode_plan", "with_thread_counts"]

VERSION = 1
"""Raised when an older runtime could no longer read what a newer one writes."""

_MAGIC = b"KTPLAN\0\0"
_HEADER = struct.Struct("<8s2I6Q14I")
_CHECKSUM_AT = 16
_TENSOR = struct.Struct("<4BI2Q")
_OPERATION = struct.Struct("<6I")
_PORT = struct.Struct("<4I2q")
_CHECK = struct.Struct("<6I")
_EXTENT = struct.Struct("<q")
_NUMBER = struct.Struct("<I")
_SUM = struct.Struct("<Q")

_MAX_RANK = 32
_PLACES = {"input": 0, "output": 1, "weights": 2, "arena": 3}
_CALL, _COPY, _BRANCH, _JUMP = range(4)
_FLOAT, _BFLOAT, _INT, _UINT, _BOOL = range(1, 6)
_KINDS = {
    "bool": (_BOOL, 8),
    "bfloat16": (_BFLOAT, 16),
    **{f"float{bits}": (_FLOAT, bits) for bits in (16, 32, 64)},
    **{f"int{bits}": (_INT, bits) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (_UINT, bits) for bits in (8, 16, 32, 64)},
}


def element_kind(dtype: str) -> tuple[int, int]:
    """The number of a type of elements (`kt_kind`) and its bits.

    Raises:
        ValueError: the runtime has no such type.
    """
    try:
        return _KINDS[dtype]
    except KeyError:
        raise ValueError(f"the runtime has no type {dtype}") from None


def encode_plan(
    plan: ExecutionPlan,
    *,
    machine: str,
    isa: Iterable[str],
    threads: int,
    weights_bytes: int,
    weights_checksum: int,
    library_bytes: int,
    library_checksum: int,
    checksum: Callable[[bytes], int],
    number: int = 0,
    total: int = 1,
) -> bytes:
    """Returns the bytes of `planN.bin`, N being its `number` among the `total` plans of the file.

    `machine` is the architecture and `isa` the extensions that the kernels use; `threads` ran them when they were
    chosen.  Sizes are in bytes; `checksum` is `kt_checksum` of the runtime, which also made the checksums of the packed
    weights and of the library.

    Raises:
        ValueError: the runtime has no type of a tensor, one has more than 32 dimensions, or a name has a NUL.
    """
    texts = _Texts()
    sections = _Sections(plan, texts)
    names_of_isa = [texts.number(name) for name in isa]
    machine_name = texts.number(machine)
    text = texts.encoded()
    counts = [
        len(plan.tensors),
        len(sections.extents),
        len(plan.operations),
        len(sections.arguments),
        len(sections.kernels),
        len(plan.input_tensors),
        len(plan.output_tensors),
        len(plan.checks),
        len(sections.sizes),
        len(names_of_isa),
        machine_name,
        len(text),
        number,
        total,
    ]

    sizes = (plan.arena_bytes, weights_bytes, weights_checksum, library_bytes, library_checksum)
    parts = [
        _HEADER.pack(_MAGIC, VERSION, threads, 0, *sizes, *counts),
        _records(_TENSOR, sections.tensors),
        _records(_EXTENT, ((extent,) for extent in sections.extents)),
        _records(_OPERATION, sections.operations),
        _records(_NUMBER, ((argument,) for argument in sections.arguments)),
        _records(_NUMBER, ((kernel,) for kernel in sections.kernels.values())),
        _records(_PORT, sections.inputs),
        _records(_PORT, sections.outputs),
        _records(_CHECK, sections.checks),
        _records(_EXTENT, ((size,) for size in sections.sizes)),
        _records(_NUMBER, ((name,) for name in names_of_isa)),
        text,
    ]
    return _sealed(b"".join(part + bytes(-len(part) % 8) for part in parts), checksum)


def with_thread_counts(encoded: bytes, counts: Mapping[int, int], checksum: Callable[[bytes], int]) -> bytes:
    """Returns the plan with other bounds of threads: `counts` by the place of a kernel's call among the operations.

    Calls that it does not name keep their bounds.  `checksum` is as for `encode_plan`.

    Raises:
        ValueError: there is no kernel called at such a place.
    """
    header = _HEADER.unpack_from(encoded)
    tensors, extents, operations = header[9:12]
    start = sum(size + -size % 8 for size in (_HEADER.size, _TENSOR.size * tensors, _EXTENT.size * extents))
    content, left = bytearray(encoded), dict(counts)
    for place in range(operations):
        at = start + _OPERATION.size * place
        if place in left and _NUMBER.unpack_from(content, at)[0] == _CALL:
            _NUMBER.pack_into(content, at + _NUMBER.size, left.pop(place))
    if left:
        raise ValueError(f"the plan calls no kernel at {', '.join(map(str, sorted(left)))}")
    return _sealed(content, checksum)


def _sealed(content: bytes | bytearray, checksum: Callable[[bytes], int]) -> bytes:
    """The plan with the checksum of all of its other bytes in its place."""
    after = _CHECKSUM_AT + _SUM.size
    whole = checksum(bytes(content[:_CHECKSUM_AT])) ^ checksum(bytes(content[after:]))
    return bytes(content[:_CHECKSUM_AT]) + _SUM.pack(whole) + bytes(content[after:])


def _records(layout: struct.Struct, records: Iterable[tuple[Any, ...]]) -> bytes:
    return b"".join(layout.pack(*record) for record in records)


class _Texts:
    """Strings that end in NUL, one after another; each has its offset as number, and the empty one has 0."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._text = bytearray()
        self.number("")

    def number(self, text: str) -> int:
        if text not in self._numbers:
            if "\0" in text:
                raise ValueError(f"a name has a NUL: {text!r}")
            self._numbers[text] = len(self._text)
            self._text += text.encode() + b"\0"
        return self._numbers[text]

    def encoded(self) -> bytes:
        return bytes(self._text)


class _Sections:
    """The records of a plan, section by section; names go to `texts`."""

    def __init__(self, plan: ExecutionPlan, texts: _Texts) -> None:
        self.extents: list[int] = []
        self.arguments: list[int] = []
        self.kernels: dict[str, int] = {}
        self.sizes: list[int] = []
        self._texts = texts
        self._shapes: dict[tuple[int, ...], int] = {}
        self._kernel_numbers: dict[str, int] = {}
        self.tensors = [self._tensor(tensor) for tensor in plan.tensors]
        self.operations = [self._operation(operation) for operation in plan.operations]
        self.inputs = [
            (number, texts.number(tensor.name), int(tensor.bounds is not None), 0, *(tensor.bounds or (0, 0)))
            for number, tensor in zip(plan.input_tensors, plan.inputs, strict=True)
        ]
        names = [tensor.name for tensor in plan.outputs] + [""] * (len(plan.output_tensors) - len(plan.outputs))
        self.outputs = [
            (number, texts.number(name), 0, 0, 0, 0) for number, name in zip(plan.output_tensors, names, strict=True)
        ]
        self.checks = [
            (
                len(plan.outputs) + check.result,
                texts.number(check.node),
                check.axis,
                self._append(self.sizes, check.sizes),
                len(check.sizes),
                int(check.negative),
            )
            for check in plan.checks
        ]

    def _tensor(self, tensor: PlannedTensor) -> tuple[int, ...]:
        rank = len(tensor.shape)
        if rank > _MAX_RANK:
            raise ValueError(f"a tensor has {rank} dimensions, the runtime has {_MAX_RANK} at most")
        if tensor.shape not in self._shapes:
            self._shapes[tensor.shape] = self._append(self.extents, tensor.shape)
        kind, bits = element_kind(tensor.dtype)
        return _PLACES[tensor.place], kind, bits, rank, self._shapes[tensor.shape], tensor.offset, tensor.nbytes

    def _operation(self, operation: Operation) -> tuple[int, ...]:
        match operation:
            case KernelCall(kernel, tensors, threads):
                self.kernels.setdefault(kernel, self._texts.number(kernel))
                number = self._kernel_numbers.setdefault(kernel, len(self._kernel_numbers))
                return _CALL, threads, number, self._append(self.arguments, tensors), len(tensors), 0
            case Copy(source, target):
                return _COPY, 0, source, target, 0, 0
            case Branch(condition, otherwise):
                return _BRANCH, 0, condition, otherwise, 0, 0
            case Jump(target):
                return _JUMP, 0, 0, target, 0, 0

    @staticmethod
    def _append(to: list[int], numbers: tuple[int, ...]) -> int:
        """Append numbers; returns where the first one is."""
        start = len(to)
        to.extend(numbers)
        return start
