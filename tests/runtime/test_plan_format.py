from __future__ import annotations

import ctypes
import struct
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.core.execution_plan import Branch, Copy, ExecutionPlan, Jump, KernelCall, PlannedTensor
from kintune.core.model import IndexCheck, Tensor
from kintune.hardware.toolchain import find_linker
from kintune.runtime.plan_format import StoredPlan, decode_plan, element_kind, encode_plan, with_thread_counts

NATIVE = Path(__file__).parents[2] / "runtime" / "native"
INCLUDE = NATIVE.parent / "src" / "kintune_runtime" / "include"

PLAN = ExecutionPlan(
    tensors=(
        PlannedTensor("input", 0, "float32", (2, 3)),
        PlannedTensor("input", 1, "int64", (2,)),
        PlannedTensor("input", 2, "bool", ()),
        PlannedTensor("weights", 64, "bfloat16", (3,)),
        PlannedTensor("arena", 128, "uint8", (2, 3)),
        PlannedTensor("output", 0, "float32", (2, 3)),
        PlannedTensor("output", 1, "int64", (2,)),
        PlannedTensor("arena", 0, "float16", (0, 3)),
    ),
    operations=(
        KernelCall("first", (0, 3, 4)),
        Branch(2, 4),
        KernelCall("second", (4, 1, 5), threads=3, title="größer (Greater) + Not"),
        Jump(5),
        KernelCall("first", (0, 3, 5)),
        Copy(1, 6),
    ),
    input_tensors=(0, 1, 2),
    output_tensors=(5, 6),
    inputs=(
        Tensor("image", (2, 3), "float32"),
        Tensor("ids", (2,), "int64", bounds=(-7, 6)),
        Tensor("größer", (), "bool"),
    ),
    outputs=(Tensor("scores", (2, 3), "float32"),),
    arena_bytes=192,
    checks=(IndexCheck("Gather_1", 0, (3, 9), 1, negative=True),),
)


class Bytes(ctypes.Structure):
    """`kt_bytes`"""

    _fields_ = [("data", ctypes.c_char_p), ("nbytes", ctypes.c_size_t)]


COUNTS = (
    "tensor_count", "extent_count", "operation_count", "argument_count", "kernel_count", "input_count", "output_count",
    "check_count", "size_count", "isa_count", "machine", "text_bytes", "number", "total",
    "variant", "cpu",
)  # fmt: skip


class ReadPlan(ctypes.Structure):
    """`kt_plan`"""

    _fields_ = [
        ("magic", ctypes.c_uint8 * 8),
        ("version", ctypes.c_uint16),
        ("flags", ctypes.c_uint16),
        ("threads", ctypes.c_uint32),
        ("checksum", ctypes.c_uint64),
        ("arena_bytes", ctypes.c_uint64),
        ("weights_offset", ctypes.c_uint64),
        ("weights_bytes", ctypes.c_uint64),
        ("weights_checksum", ctypes.c_uint64),
        ("library_bytes", ctypes.c_uint64),
        ("library_checksum", ctypes.c_uint64),
        *((name, ctypes.c_uint32) for name in COUNTS),
        ("tensors", ctypes.c_void_p),
        ("extents", ctypes.POINTER(ctypes.c_int64)),
        ("operations", ctypes.c_void_p),
        ("arguments", ctypes.POINTER(ctypes.c_uint32)),
        ("kernels", ctypes.POINTER(ctypes.c_uint32)),
        ("inputs", ctypes.c_void_p),
        ("outputs", ctypes.c_void_p),
        ("checks", ctypes.c_void_p),
        ("sizes", ctypes.POINTER(ctypes.c_int64)),
        ("isa", ctypes.POINTER(ctypes.c_uint32)),
        ("text", ctypes.c_void_p),
        *((name, ctypes.c_uint32) for name in ("dimension_count", "patch_count", "number_count", "padding")),
        ("dimensions", ctypes.c_void_p),
        ("patches", ctypes.c_void_p),
        ("numbers", ctypes.POINTER(ctypes.c_int64)),
        ("memory", ctypes.c_void_p),
    ]


class Native:
    """The runtime's reader of plans."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        library.kt_checksum.restype = ctypes.c_uint64
        library.kt_checksum.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
        library.kt_plan_read.argtypes = [Bytes, ctypes.c_char_p, ctypes.c_void_p]
        library.kt_last_error.restype = ctypes.c_char_p

    def checksum(self, content: bytes) -> int:
        return int(self._library.kt_checksum(content, len(content)))

    def read(self, content: bytes) -> tuple[ReadPlan, str]:
        """What the reader makes of it, and its complaint, which is empty if there is none."""
        plan = ReadPlan()
        status = self._library.kt_plan_read(Bytes(content, len(content)), b"plan", ctypes.byref(plan))
        return plan, self._library.kt_last_error().decode() if status else ""


@pytest.fixture(scope="session")
def native(tmp_path_factory: pytest.TempPathFactory) -> Native:
    library = tmp_path_factory.mktemp("native") / "plan.so"
    sources = [str(NATIVE / f"{name}.c") for name in ("checksum", "error", "plan")]
    flags = ["-std=gnu11", "-fPIC", "-shared", f"-I{INCLUDE}"]
    subprocess.run([find_linker(), *flags, "-o", str(library), *sources], check=True)
    return Native(ctypes.CDLL(str(library)))


def encoded(plan: ExecutionPlan, checksum: Callable[[bytes], int]) -> bytes:
    return encode_plan(
        plan,
        machine="x86_64",
        isa=("avx2", "fma"),
        threads=8,
        weights_bytes=128,
        weights_checksum=5,
        library_bytes=1000,
        library_checksum=2**64 - 1,
        checksum=checksum,
        number=3,
        total=4,
        variant=1,
        cpu="A CPU @ 2 GHz",
        weights_offset=192,
    )


def records(address: int, layout: str, count: int) -> list[tuple[Any, ...]]:
    return list(struct.iter_unpack(layout, ctypes.string_at(address, count * struct.calcsize(layout))))


def test_the_runtime_reads_what_is_written(native: Native) -> None:
    content = encoded(PLAN, native.checksum)  # what the reader points into
    plan, complaint = native.read(content)
    assert complaint == ""
    assert len(content) % 8 == 0

    def text(offset: int) -> str:
        return ctypes.string_at(plan.text + offset).decode()

    header = (plan.version, plan.threads, plan.arena_bytes, plan.weights_bytes, plan.weights_checksum)
    assert header == (2, 8, 192, 128, 5)
    assert (plan.library_bytes, plan.library_checksum, text(plan.machine)) == (1000, 2**64 - 1, "x86_64")
    assert (plan.weights_offset, plan.number, plan.total, plan.variant, text(plan.cpu)) == (
        192,
        3,
        4,
        1,
        "A CPU @ 2 GHz",
    )
    assert [text(plan.isa[i]) for i in range(plan.isa_count)] == ["avx2", "fma"]

    tensors = records(plan.tensors, "<4BI2Q", plan.tensor_count)
    assert len(tensors) == len(PLAN.tensors)
    for (place, kind, bits, rank, first, offset, nbytes), tensor in zip(tensors, PLAN.tensors, strict=True):
        assert ("input", "output", "weights", "arena")[place] == tensor.place
        assert (kind, bits) == element_kind(tensor.dtype)
        assert tuple(plan.extents[first + i] for i in range(rank)) == tensor.shape
        assert (offset, nbytes) == (tensor.offset, tensor.nbytes)

    kernels = [text(plan.kernels[i]) for i in range(plan.kernel_count)]
    assert kernels == ["first", "second"]
    read: list[Any] = []
    for opcode, threads, subject, arguments, count, title in records(plan.operations, "<6I", plan.operation_count):
        called = tuple(plan.arguments[arguments + i] for i in range(count))
        read.append(
            (
                lambda s, a, c, t, n: KernelCall(kernels[s], c, t, text(n)),
                lambda s, a, c, t, n: Copy(s, a),
                lambda s, a, c, t, n: Branch(s, a),
                lambda s, a, c, t, n: Jump(a),
            )[opcode](subject, arguments, called, threads, title)
        )
    assert tuple(read) == PLAN.operations

    inputs = [(n, text(name), *rest) for n, name, *rest in records(plan.inputs, "<4I2q", plan.input_count)]
    assert inputs == [(0, "image", 0, 0, 0, 0), (1, "ids", 1, 0, -7, 6), (2, "größer", 0, 0, 0, 0)]
    outputs = [(n, text(name)) for n, name, *_ in records(plan.outputs, "<4I2q", plan.output_count)]
    assert outputs == [(5, "scores"), (6, "")]
    ((port, node, axis, first, count, negative),) = records(plan.checks, "<6I", plan.check_count)
    assert (port, text(node), axis, negative) == (1, "Gather_1", 1, 1)
    assert [plan.sizes[first + i] for i in range(count)] == [3, 9]
    assert (plan.dimension_count, plan.patch_count, plan.number_count) == (0, 0, 0)


def test_a_plan_can_keep_denormal_numbers(native: Native) -> None:
    content = decode_plan(encoded(PLAN, native.checksum), native.checksum)._replace(keep_denormals=True)
    kept = content.encoded(native.checksum)
    assert decode_plan(kept, native.checksum) == content
    assert (native.read(kept)[0].flags, native.read(encoded(PLAN, native.checksum))[0].flags) == (1, 0)


def test_flags_of_later_versions_are_refused(native: Native) -> None:
    content = bytearray(encoded(PLAN, native.checksum))
    content[10] = 4
    content[16:24] = (native.checksum(bytes(content[:16])) ^ native.checksum(bytes(content[24:]))).to_bytes(8, "little")
    assert "written by a later Kintune" in native.read(bytes(content))[1]
    with pytest.raises(ValueError, match="a plan of a later Kintune"):
        decode_plan(bytes(content), native.checksum)


def test_every_changed_byte_is_found(native: Native) -> None:
    content = encoded(PLAN, native.checksum)
    for at in range(len(content)):
        damaged = content[:at] + bytes([content[at] ^ 0x40]) + content[at + 1 :]
        assert native.read(damaged)[1], at


@pytest.mark.parametrize(
    ("tensor", "complaint"),
    [
        (PlannedTensor("arena", 192, "float32", (1,)), "a tensor"),
        (PlannedTensor("weights", 65, "int8", (1,)), "a tensor"),
        (PlannedTensor("input", 1, "float32", (5,)), "a view"),
        (PlannedTensor("output", 2, "float32", (1,)), "a tensor"),
    ],
)
def test_a_tensor_outside_of_its_memory_is_found(native: Native, tensor: PlannedTensor, complaint: str) -> None:
    plan = msgspec.structs.replace(PLAN, tensors=(*PLAN.tensors, tensor))
    assert f"damaged plan ({complaint})" in native.read(encoded(plan, native.checksum))[1]


def checksum(content: bytes) -> int:
    """Any function will do where the runtime does not read what was written."""
    return zlib.crc32(content)


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
NUMBERS = st.integers(0, 2**32 - 1)
SIZES = st.integers(0, 2**64 - 1)


@st.composite
def plans(draw: st.DrawFn) -> ExecutionPlan:
    """Plans that can be written, not all of which the runtime takes."""
    shapes = st.lists(st.integers(0, 2**40), max_size=3).map(tuple)
    dtypes = st.sampled_from(["bool", "bfloat16", "float16", "float32", "float64", "int8", "int64", "uint8", "uint32"])
    places = st.sampled_from(["input", "output", "weights", "arena"])
    # a tensor of 2**120 bytes has no size that fits
    small = st.builds(PlannedTensor, places, SIZES, dtypes, shapes).filter(lambda tensor: tensor.nbytes < 2**64)
    tensors = tuple(draw(st.lists(small, min_size=1, max_size=6)))
    some = st.lists(st.integers(0, len(tensors) - 1), max_size=3).map(tuple)
    operation = st.one_of(
        st.builds(KernelCall, NAMES, some, NUMBERS, NAMES),
        st.builds(Copy, NUMBERS, NUMBERS),
        st.builds(Branch, NUMBERS, NUMBERS),
        st.builds(Jump, NUMBERS),
    )
    bounds = st.none() | st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
    inputs, outputs = draw(some), draw(some)
    sizes = st.lists(st.integers(1, 2**40), max_size=3).map(tuple)
    checks = tuple(
        IndexCheck(draw(NAMES), result, draw(sizes), draw(NUMBERS), draw(st.booleans()))
        for result in range(draw(st.integers(0, len(outputs))))
    )
    return ExecutionPlan(
        tensors=tensors,
        operations=tuple(draw(st.lists(operation, max_size=6))),
        input_tensors=inputs,
        output_tensors=outputs,
        inputs=tuple(Tensor(draw(NAMES), tensors[n].shape, tensors[n].dtype, draw(bounds)) for n in inputs),
        outputs=tuple(
            Tensor(draw(NAMES), tensors[n].shape, tensors[n].dtype) for n in outputs[: len(outputs) - len(checks)]
        ),
        arena_bytes=draw(SIZES),
        checks=checks,
    )


STORED = st.builds(
    StoredPlan, plans(), NAMES, st.lists(NAMES, max_size=4).map(tuple), NUMBERS, SIZES, SIZES, SIZES, SIZES, NUMBERS,
    NUMBERS, NUMBERS, NAMES, SIZES,
)  # fmt: skip


@given(STORED)
def test_what_is_written_is_read_again(stored: StoredPlan) -> None:
    content = stored.encoded(checksum)
    assert decode_plan(content, checksum) == stored
    assert decode_plan(content, checksum).encoded(checksum) == content


@given(STORED, st.data())
def test_any_content_is_read_or_refused_in_one_line(stored: StoredPlan, data: st.DataObject) -> None:
    """With a right checksum, so that the checks behind it are what is tried."""
    content = bytearray(stored.encoded(checksum))
    start = data.draw(st.integers(0, len(content) - 1))
    more = data.draw(st.binary(min_size=1, max_size=40))
    content[start : start + len(more)] = more
    content = content[: data.draw(st.sampled_from([len(content), len(content) - 8, start]))]
    content[16:24] = (checksum(bytes(content[:16])) ^ checksum(bytes(content[24:]))).to_bytes(8, "little")
    try:
        decode_plan(bytes(content), checksum)
    except ValueError as error:
        assert "\n" not in str(error)  # noqa: PT017


def test_a_changed_byte_is_found_by_its_checksum() -> None:
    content = encoded(PLAN, checksum)
    for at in range(len(content)):
        damaged = content[:at] + bytes([content[at] ^ 0x40]) + content[at + 1 :]
        with pytest.raises(ValueError, match="plan"):
            decode_plan(damaged, checksum)


def test_a_plan_of_another_version_is_named() -> None:
    content = encoded(PLAN, checksum)
    with pytest.raises(ValueError, match="a plan of version 7, this Kintune reads version 2"):
        decode_plan(content[:8] + b"\x07" + content[9:], checksum)


def test_weights_that_begin_at_no_multiple_of_64_are_refused(native: Native) -> None:
    stored = decode_plan(encoded(PLAN, native.checksum), native.checksum)
    content = stored._replace(weights_offset=32).encoded(native.checksum)
    assert "damaged plan (weights)" in native.read(content)[1]


def test_the_same_plan_gives_the_same_bytes() -> None:
    assert encoded(PLAN, len) == encoded(PLAN, len)


def test_an_empty_plan(native: Native) -> None:
    plan = ExecutionPlan((), (), (), (), (), (), 0)
    assert native.read(encoded(plan, native.checksum))[1] == ""


def test_what_the_runtime_cannot_hold_is_refused() -> None:
    with pytest.raises(ValueError, match="no type float8_e4m3fn"):
        element_kind("float8_e4m3fn")
    many = PlannedTensor("arena", 0, "int8", (1,) * 33)
    with pytest.raises(ValueError, match="33 dimensions"):
        encoded(msgspec.structs.replace(PLAN, tensors=(*PLAN.tensors, many)), len)
    outputs = (Tensor("a\0b", (2, 3), "float32"),)
    with pytest.raises(ValueError, match="a name has a NUL"):
        encoded(msgspec.structs.replace(PLAN, outputs=outputs), len)


def test_thread_counts_are_replaced_and_nothing_else(native: Native) -> None:
    calls = list(PLAN.operations)
    calls[0], calls[4] = KernelCall("first", (0, 3, 4), threads=1), KernelCall("first", (0, 3, 5), threads=4)
    changed = with_thread_counts(encoded(PLAN, native.checksum), {0: 1, 4: 4}, native.checksum)
    assert changed == encoded(msgspec.structs.replace(PLAN, operations=tuple(calls)), native.checksum)
    assert native.read(changed)[1] == ""


@pytest.mark.parametrize("place", [1, 5, 6, -1])
def test_a_thread_count_without_a_call_is_refused(place: int) -> None:
    with pytest.raises(ValueError, match=f"no kernel at {place}"):
        with_thread_counts(encoded(PLAN, len), {0: 1, place: 1}, len)


def test_a_title_outside_of_the_text_is_found(native: Native) -> None:
    content = bytearray(encoded(PLAN, native.checksum))
    plan, _ = native.read(bytes(content))
    called = content.index(struct.pack("<6I", 0, 0, 0, 0, 3, 0))  # the first call, which has no title
    assert plan.text_bytes < 1 << 16
    content[called : called + 24] = struct.pack("<6I", 0, 0, 0, 0, 3, 1 << 16)
    content[16:24] = (native.checksum(bytes(content[:16])) ^ native.checksum(bytes(content[24:]))).to_bytes(8, "little")
    assert "damaged plan (an operation)" in native.read(bytes(content))[1]
