"""Writes an execution plan as the C runtime reads it, and reads it again.

`runtime/native/internal.h` has the records, `plan.c` the rules.

A header, then sections of records, little-endian, each padded to a multiple of 8 bytes; names are offsets into the last
section, a text of strings that end in NUL.  It does not import TVM.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from kintune.core.execution_plan import (
    Branch,
    Copy,
    ExecutionPlan,
    Jump,
    KernelCall,
    OpenExtent,
    OpenExtents,
    Operation,
    Place,
    PlannedTensor,
)
from kintune.core.extents import Formula, Product, Quotient
from kintune.core.model import IndexCheck, Tensor

__all__ = ["VERSION", "StoredPlan", "decode_plan", "element_kind", "encode_plan", "with_thread_counts"]

VERSION = 2
"""Raised when an older runtime could no longer read what a newer one writes."""

_MAGIC = b"KTPLAN\0\0"
_HEADER = struct.Struct("<8s2HI7Q16I")
_KEEPS_DENORMALS, _IS_OPEN = 1, 2  # flags
_CHECKSUM_AT = 16
_TENSOR = struct.Struct("<4BI2Q")
_OPERATION = struct.Struct("<6I")
_PORT = struct.Struct("<4I2q")
_CHECK = struct.Struct("<6I")
_EXTENT = struct.Struct("<q")
_NUMBER = struct.Struct("<I")
_OPEN = struct.Struct("<4I")
_DIMENSION = struct.Struct("<4I3q")
_PATCH = struct.Struct("<4I")
_EXTENT_PATCH, _OFFSET_PATCH, _SIZE_PATCH = range(3)

_MAX_RANK = 32
_PLACE_NAMES: tuple[Place, ...] = ("input", "output", "weights", "arena")
_PLACES = {name: number for number, name in enumerate(_PLACE_NAMES)}
_CALL, _COPY, _BRANCH, _JUMP = range(4)
_FLOAT, _BFLOAT, _INT, _UINT, _BOOL = range(1, 6)
_KINDS = {
    "bool": (_BOOL, 8),
    "bfloat16": (_BFLOAT, 16),
    **{f"float{bits}": (_FLOAT, bits) for bits in (16, 32, 64)},
    **{f"int{bits}": (_INT, bits) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (_UINT, bits) for bits in (8, 16, 32, 64)},
}

_DTYPES = {kind: name for name, kind in _KINDS.items()}


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
    variant: int = 0,
    cpu: str = "",
    weights_offset: int = 0,
    keep_denormals: bool = False,
) -> bytes:
    """Returns the bytes of `planN.bin`, N being its `number` among the `total` plans of the file.

    `machine` is the architecture and `isa` the extensions that the kernels use; `threads` ran them when they were
    chosen, on the CPU called `cpu`.  `variant` counts the kinds of CPU that the file is for.  Sizes are in bytes.  The
    weights are the part of `weights.bin` of `weights_bytes` from `weights_offset` on; offsets of tensors count from
    there.  `checksum` is `kt_checksum` of the runtime, which also made the checksums of the weights and of the library.
    Denormal numbers are flushed to zero unless `keep_denormals`.

    Raises:
        ValueError: the runtime has no type of a tensor, one has more than 32 dimensions, or a name has a NUL.
    """
    texts = _Texts()
    sections = _Sections(plan, texts)
    names_of_isa = [texts.number(name) for name in isa]
    machine_name, cpu_name = texts.number(machine), texts.number(cpu)
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
        variant,
        cpu_name,
    ]

    flags = (_KEEPS_DENORMALS if keep_denormals else 0) | (_IS_OPEN if plan.open is not None else 0)

    def content(sum_of_all: int) -> bytes:
        sizes = (plan.arena_bytes, weights_offset, weights_bytes, weights_checksum, library_bytes, library_checksum)
        parts = [
            _HEADER.pack(_MAGIC, VERSION, flags, threads, sum_of_all, *sizes, *counts),
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
            *sections.of_open_extents,
        ]
        return b"".join(part + bytes(-len(part) % 8) for part in parts)

    blank = content(0)
    return content(checksum(blank[:_CHECKSUM_AT]) ^ checksum(blank[_CHECKSUM_AT + 8 :]))


class StoredPlan(NamedTuple):
    """What `encode_plan` was given; inputs have no `values` and `below`, which no plan holds."""

    plan: ExecutionPlan
    machine: str
    isa: tuple[str, ...]
    threads: int
    weights_bytes: int
    weights_checksum: int
    library_bytes: int
    library_checksum: int
    number: int
    total: int
    variant: int
    cpu: str
    weights_offset: int
    keep_denormals: bool

    def encoded(self, checksum: Callable[[bytes], int]) -> bytes:
        """The bytes of `planN.bin`, as `encode_plan` makes them.

        Raises:
            ValueError: as for `encode_plan`.
        """
        return encode_plan(**self._asdict(), checksum=checksum)


def decode_plan(content: bytes, checksum: Callable[[bytes], int]) -> StoredPlan:
    """Reads what `encode_plan` wrote.

    Raises:
        ValueError: it is damaged, or of another version; the text is one line.
    """
    if len(content) < _HEADER.size or not content.startswith(_MAGIC):
        raise ValueError("no plan")
    _, version, flags, threads, sum_of_all, *rest = _HEADER.unpack_from(content)
    if version != VERSION:
        raise ValueError(f"a plan of version {version}, this Kintune reads version {VERSION}")
    if checksum(content[:_CHECKSUM_AT]) ^ checksum(content[_CHECKSUM_AT + 8 :]) != sum_of_all:
        raise ValueError("a plan with a bad checksum")
    if flags & ~(_KEEPS_DENORMALS | _IS_OPEN):
        raise ValueError("a plan of a later Kintune")
    try:
        return _decoded(content, threads, rest, flags)
    except (IndexError, KeyError, ValueError) as error:
        raise ValueError(f"a damaged plan ({error})") from error


def with_thread_counts(content: bytes, counts: Mapping[int, int], checksum: Callable[[bytes], int]) -> bytes:
    """Returns the plan with other bounds of threads: `counts` by the place of a kernel's call among the operations.

    Calls that it does not name keep their bounds.  `checksum` is as for `encode_plan`.

    Raises:
        ValueError: no kernel is called at such a place, or the plan is damaged.
    """
    stored = decode_plan(content, checksum)
    operations = list(stored.plan.operations)
    for place, threads in counts.items():
        call = operations[place] if 0 <= place < len(operations) else None
        if not isinstance(call, KernelCall):
            raise ValueError(f"the plan calls no kernel at {place}")
        operations[place] = msgspec.structs.replace(call, threads=threads)
    plan = msgspec.structs.replace(stored.plan, operations=tuple(operations))
    return stored._replace(plan=plan).encoded(checksum)


def _decoded(content: bytes, threads: int, numbers: list[int], flags: int) -> StoredPlan:
    arena, weights_offset, weights_bytes, weights_checksum, library_bytes, library_checksum, *counts = numbers
    tensor_count, extent_count, operation_count, argument_count, kernel_count, input_count, output_count, *rest = counts
    check_count, size_count, isa_count, machine, text_bytes, number, total, variant, cpu = rest
    at = _HEADER.size

    def take(layout: struct.Struct, count: int) -> list[tuple[Any, ...]]:
        nonlocal at
        end = at + layout.size * count
        if end > len(content):
            raise ValueError("truncated")
        records = list(layout.iter_unpack(content[at:end]))
        at = end + -end % 8
        return records

    tensors = take(_TENSOR, tensor_count)
    extents = tuple(each for (each,) in take(_EXTENT, extent_count))
    operations = take(_OPERATION, operation_count)
    arguments = tuple(each for (each,) in take(_NUMBER, argument_count))
    kernels = [each for (each,) in take(_NUMBER, kernel_count)]
    inputs, outputs, checks = take(_PORT, input_count), take(_PORT, output_count), take(_CHECK, check_count)
    sizes = tuple(each for (each,) in take(_EXTENT, size_count))
    isa = [each for (each,) in take(_NUMBER, isa_count)]
    text = content[at : at + text_bytes]
    at += text_bytes + -text_bytes % 8

    def name(offset: int) -> str:
        return text[offset : text.index(b"\0", offset)].decode()

    def operation(opcode: int, limit: int, subject: int, first: int, count: int, title: int) -> Operation:
        made: tuple[Callable[[], Operation], ...] = (
            lambda: KernelCall(name(kernels[subject]), arguments[first : first + count], limit, name(title)),
            lambda: Copy(subject, first),
            lambda: Branch(subject, first),
            lambda: Jump(first),
        )  # in the order of their opcodes
        return made[opcode]()

    planned = tuple(
        PlannedTensor(_PLACE_NAMES[place], offset, _DTYPES[kind, bits], extents[first : first + rank])
        for place, kind, bits, rank, first, offset, _ in tensors
    )
    own = outputs[: len(outputs) - len(checks)]
    opened = None
    if flags & _IS_OPEN:
        ((dimension_count, patch_count, number_count, _),) = take(_OPEN, 1)
        dimensions = tuple(
            OpenExtent(name(called), port, axis, least, greatest, step)
            for called, port, axis, _, least, greatest, step in take(_DIMENSION, dimension_count)
        )
        patches = take(_PATCH, patch_count)
        formulas = [each for (each,) in take(_EXTENT, number_count)]
        opened = _opened(dimensions, patches, formulas, tensors, extents, checks, sizes)
    plan = ExecutionPlan(
        tensors=planned,
        operations=tuple(operation(*record) for record in operations),
        input_tensors=tuple(tensor for tensor, *_ in inputs),
        output_tensors=tuple(tensor for tensor, *_ in outputs),
        inputs=tuple(
            Tensor(name(called), planned[tensor].shape, planned[tensor].dtype, (least, greatest) if bounded else None)
            for tensor, called, bounded, _, least, greatest in inputs
        ),
        outputs=tuple(Tensor(name(called), planned[tensor].shape, planned[tensor].dtype) for tensor, called, *_ in own),
        arena_bytes=arena,
        checks=tuple(
            IndexCheck(name(node), port - len(own), sizes[first : first + count], axis, bool(negative))
            for port, node, axis, first, count, negative in checks
        ),
        open=opened,
    )
    return StoredPlan(
        plan=plan, machine=name(machine), isa=tuple(name(each) for each in isa), threads=threads,
        weights_bytes=weights_bytes, weights_checksum=weights_checksum, library_bytes=library_bytes,
        library_checksum=library_checksum, number=number, total=total, variant=variant, cpu=name(cpu),
        weights_offset=weights_offset, keep_denormals=bool(flags & _KEEPS_DENORMALS),
    )  # fmt: skip


def _opened(
    dimensions: tuple[OpenExtent, ...],
    patches: Iterable[tuple[int, ...]],
    numbers: Sequence[int],
    tensors: Sequence[tuple[int, ...]],
    extents: Sequence[int],
    checks: Sequence[tuple[int, ...]],
    sizes: Sequence[int],
) -> OpenExtents:
    found: tuple[dict[int, Formula], ...] = ({}, {}, {})
    for subject, place, first, count in patches:
        found[subject][place] = _formula(numbers[first : first + count], [each.name for each in dimensions])

    def formulas(subject: int, stored: Sequence[int], first: int, count: int) -> tuple[Formula, ...]:
        places = range(first, first + count)
        if not any(place in found[subject] for place in places):
            return ()
        return tuple(found[subject].get(place, Formula.of(stored[place])) for place in places)

    shapes = {
        number: shape
        for number, (_, _, _, rank, first, *_) in enumerate(tensors)
        if (shape := formulas(_EXTENT_PATCH, extents, first, rank))
    }
    of_checks = {
        number: found_sizes
        for number, (_, _, _, first, count, _) in enumerate(checks)
        if (found_sizes := formulas(_SIZE_PATCH, sizes, first, count))
    }
    return OpenExtents(dimensions, shapes, found[_OFFSET_PATCH], of_checks)


def _formula(numbers: Sequence[int], names: Sequence[str]) -> Formula:
    """Reads what `_numbers_of` wrote."""
    each, left = iter(numbers), len(numbers)
    products = []
    while left > 0:
        coefficient, factors = next(each), []
        count = next(each)
        left -= 2
        for _ in range(count):
            terms = next(each)
            steps = tuple((names[next(each)], next(each)) for _ in range(terms))
            factors.append(Quotient(steps, next(each), next(each)))
            left -= 2 * terms + 3
        products.append(Product(coefficient, tuple(factors)))
    return Formula(tuple(products))


def _numbers_of(formula: Formula, names: Sequence[str]) -> list[int]:
    """The numbers of a formula, as `open_plan.c` reads them."""
    numbers = []
    for product in formula.products:
        numbers += [product.coefficient, len(product.factors)]
        for factor in product.factors:
            steps = [number for name, step in factor.steps for number in (names.index(name), step)]
            numbers += [len(factor.steps), *steps, factor.constant, factor.divisor]
    return numbers


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
        self._shapes: dict[tuple[Any, ...], int] = {}
        self._kernel_numbers: dict[str, int] = {}
        opened = plan.open or OpenExtents((), {}, {}, {})
        self._names = [each.name for each in opened.dimensions]
        self._patches: dict[tuple[int, int], Formula] = {}
        self.tensors = [
            self._tensor(tensor, opened.shapes.get(number, ())) for number, tensor in enumerate(plan.tensors)
        ]
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
                self._sizes(check.sizes, opened.sizes.get(number, ())),
                len(check.sizes),
                int(check.negative),
            )
            for number, check in enumerate(plan.checks)
        ]
        for number, formula in opened.offsets.items():
            self._patches[_OFFSET_PATCH, number] = formula
        self.of_open_extents = self._open_extents(opened.dimensions) if plan.open is not None else []

    def _open_extents(self, dimensions: Sequence[OpenExtent]) -> list[bytes]:
        named = [(self._texts.number(each.name), each) for each in dimensions]
        numbers: list[int] = []
        patches = []
        for (subject, place), formula in self._patches.items():
            written = tuple(_numbers_of(formula, self._names))
            patches.append((subject, place, self._append(numbers, written), len(written)))
        return [
            _OPEN.pack(len(dimensions), len(patches), len(numbers), 0),
            _records(_DIMENSION, ((n, d.input, d.axis, 0, d.least, d.greatest, d.step) for n, d in named)),
            _records(_PATCH, patches),
            _records(_EXTENT, ((number,) for number in numbers)),
        ]

    def _sizes(self, sizes: tuple[int, ...], formulas: tuple[Formula, ...]) -> int:
        first = self._append(self.sizes, sizes)
        self._patch(_SIZE_PATCH, first, formulas)
        return first

    def _patch(self, subject: int, first: int, formulas: tuple[Formula, ...]) -> None:
        for place, formula in enumerate(formulas, first):
            if formula.names:
                self._patches[subject, place] = formula

    def _tensor(self, tensor: PlannedTensor, formulas: tuple[Formula, ...]) -> tuple[int, ...]:
        rank = len(tensor.shape)
        if rank > _MAX_RANK:
            raise ValueError(f"a tensor has {rank} dimensions, the runtime has {_MAX_RANK} at most")
        key = (tensor.shape, *map(str, formulas))
        if key not in self._shapes:
            self._shapes[key] = self._append(self.extents, tensor.shape)
            self._patch(_EXTENT_PATCH, self._shapes[key], formulas)
        kind, bits = element_kind(tensor.dtype)
        return _PLACES[tensor.place], kind, bits, rank, self._shapes[key], tensor.offset, tensor.nbytes

    def _operation(self, operation: Operation) -> tuple[int, ...]:
        match operation:
            case KernelCall(kernel, tensors, threads, title):
                self.kernels.setdefault(kernel, self._texts.number(kernel))
                number = self._kernel_numbers.setdefault(kernel, len(self._kernel_numbers))
                first, named = self._append(self.arguments, tensors), self._texts.number(title)
                return _CALL, threads, number, first, len(tensors), named
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
