"""Sums of products of all kinds as workloads, drawn at the edges of tiles, and the table of programs that compute them.

A new program or instruction is a row of `WRITERS`; a new kind of sums is one of `SUMS`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from hypothesis import strategies as st

from kintune.hardware.cpu import host_extensions
from kintune.search.processor import Processor
from tests.support.convolutions import Case, extents, workload
from tests.support.products import product
from tests.support.targets import native_target

__all__ = [
    "MACHINE",
    "NARROW",
    "SUMS",
    "WORTH",
    "WRITERS",
    "Bytes",
    "BytesOfImage",
    "FewBits",
    "Image",
    "Product",
    "Writer",
    "built",
    "drawn_operands",
    "extreme_operands",
    "runs_here",
]

MACHINE = Processor(16, 32, 2, (48 << 10, 2 << 20, 32 << 20))

EDGES = (16, 15, 17, 13, 1, 48)
"""A tile of rows or columns, one fewer, one more, a prime, one, and several."""

NARROW = frozenset({"bf16"})


class Writer(NamedTuple):
    """A program and a variant of it, by name; the `sums` that it computes, and the largest error of them.

    It is offered for the CPU `cpu`, and assembly for that has the `instruction`, a regular expression.  It runs where
    the CPU has one of the sets of extensions `needs`.  Without a `cpu` it is never offered.
    """

    program: str
    variant: str
    sums: tuple[str, ...]
    cpu: str
    needs: tuple[frozenset[str], ...] = (frozenset(),)
    error: float = 1e-5
    instruction: str = ""

    @property
    def made(self) -> Any:
        """The program."""
        from kintune.compiler.programs.registry import PROGRAMS

        return next(each for each in PROGRAMS if each.name == self.program)


def _all(*extensions: str) -> tuple[frozenset[str], ...]:
    return (frozenset(extensions),)


_MATRICES = ("product", "one row", "weights across", "rows of a norm")
_IMAGES = ("convolution", "few positions", "pointwise", "one channel")
_FLOATS = (*_MATRICES, *_IMAGES)
_BYTES, _TILES = ("bytes", "batched bytes", "image of bytes"), ("bytes", "image of bytes")
_FOUR, _TWO = "winograd_blocked", "winograd_narrow"
_NEON = "{} -mtriple=aarch64-linux-gnu"
_AVX512, _VNNI, _BF16 = _all("avx512f"), _all("avx512f", "avx512vnni"), _all("avx512f", "avx512bf16")
_ON_ARM = _all("of Arm")

WRITERS = (
    *(Writer("vectors", each, (*_FLOATS, "groups"), cpu) for each, cpu in (("8x16", "core-avx2"), ("16x32", "znver4"))),
    Writer("vectors", "4x32", (*_FLOATS, "groups"), _NEON.format("neoverse-n1")),
    Writer("depthwise", "8x16", ("depthwise",), "core-avx2"),
    Writer("narrow", "dot", _FLOATS, "znver4", _BF16, 6e-3, r"vdpbf16ps.*zmm"),
    Writer("narrow", "amx", _FLOATS, "sapphirerapids", _BF16, 6e-3, r"tdpbf16ps\s+%tmm"),
    Writer("narrow", "bfdot", _FLOATS, _NEON.format("neoverse-n2"), _ON_ARM, 6e-3, r"\tbfdot\t"),
    Writer(_FOUR, "4x16", ("three by three",), "znver4", error=1e-4),
    Writer(_FOUR, "2x16", ("three by three",), ""),
    Writer(_FOUR, "4x8", ("three by three",), "core-avx2", error=1e-4),
    Writer(_TWO, "2x16", ("three by three",), "znver4", _BF16, 2e-2, r"vdpbf16ps.*zmm"),
    Writer("blockwise", "permute16", ("few bits", "few bits of a norm"), "cascadelake", _AVX512),
    Writer("blockwise", "convert8", ("few bits", "few bits of a norm"), "core-avx2"),
    Writer("bytes", "vnni", _BYTES, "cascadelake", _VNNI, 0.0, r"vpdpbusd.*zmm"),
    Writer("bytes", "vnni256", _BYTES, "alderlake", (*_all("avxvnni"), *_VNNI), 0.0, r"vpdpbusd.*ymm"),
    Writer("bytes", "usdot", _BYTES, _NEON.format("neoverse-n2"), _ON_ARM, 0.0, r"\tusdot\t"),
    Writer("bytes", "sdot", _BYTES, _NEON.format("cortex-a76"), _ON_ARM, 0.0, r"\tsdot\t"),
    Writer("byte_tiles", "amx", _TILES, "sapphirerapids", _VNNI, 0.0, r"tdpbusd\s+%tmm"),
)
"""Programs of tiles run with kernels of vectors where a CPU has no tiles (`runnable_tiles`)."""


def runs_here(writer: Writer) -> bool:
    """Whether this CPU has what the program needs."""
    has = frozenset(host_extensions() or ())
    return any(needs <= has for needs in writer.needs)


def drawn_operands(module: Any) -> list[np.ndarray[Any, Any]]:
    """Arrays for all parameters of a module but the last, drawn by their types."""
    random, found = np.random.default_rng(0), list[Any]()
    for parameter in module["main"].params[:-1]:
        shape, dtype = tuple(map(int, parameter.shape)), str(parameter.dtype)
        if np.dtype(dtype).kind == "f":
            found.append(random.standard_normal(shape).astype(dtype))
        else:
            limits = np.iinfo(dtype)
            low, high = max(limits.min, -1000), min(limits.max, 1000)
            found.append(random.integers(low, high + 1, shape).astype(dtype))
    return found


def extreme_operands(arrays: Sequence[Any], random: np.random.Generator) -> list[np.ndarray[Any, Any]]:
    """The arrays at extremes of their types: of floats, one element of the data is infinite or NaN; of integers, all
    elements of an array are its type's greatest, or least.
    """
    found = [each.copy() for each in arrays]
    if found[0].dtype.kind == "f":
        found[0].flat[random.integers(found[0].size)] = random.choice((np.inf, -np.inf, np.nan))
        return found
    for each in found[:2]:
        each.fill(random.choice((np.iinfo(each.dtype).min, np.iinfo(each.dtype).max)))
    return found


def built(module: Any, *, proven: bool) -> Callable[..., np.ndarray[Any, Any]]:
    """A function that gives what a written module stores in its last parameter, from arrays for the others.

    It is given the shape of that, too, where the module is for any.  All accesses must be `proven` to be in bounds, if
    so.
    """
    import tvm

    from kintune.compiler.bounds import keeping_lowered, prove

    result = module["main"].params[-1]
    with keeping_lowered() as functions:
        library = tvm.compile(module, native_target())
    assert not proven or [line for each in functions.values() for line in prove(each).unproven] == []

    def run(arrays: Collection[Any], shape: tuple[int, ...] = ()) -> np.ndarray[Any, Any]:
        tensors = [tvm.runtime.tensor(each) for each in arrays]
        out = tvm.runtime.tensor(np.zeros(shape or tuple(map(int, result.shape)), str(result.dtype)))
        library["main"](*tensors, out)
        return np.asarray(out.numpy())

    return run


class Product(msgspec.Struct, frozen=True):
    """A product of rows `[*shape, depth]` with weights, and what follows it; see `products.product`."""

    shape: tuple[int, ...]
    columns: int
    depth: int
    after: bool | str = False
    across: bool = False

    def module(self) -> Any:
        """The workload."""
        return product(
            *self.shape, columns=self.columns, reduced=self.depth, epilogue=self.after, transposed=self.across
        )


class RowsOfNorm(msgspec.Struct, frozen=True):
    """A product of the norm of rows `[*shape, depth]`, "rms" or "layer", and what follows it, if anything."""

    shape: tuple[int, ...]
    columns: int
    depth: int
    after: bool
    norm: str

    def module(self) -> Any:
        """The workload."""
        import tvm
        from tvm import te, topi

        data, gain, weight, bias = (
            te.placeholder(shape, "float32", name)
            for name, shape in (
                ("data", (*self.shape, self.depth)),
                ("gain", (self.depth,)),
                ("weight", (self.depth, self.columns)),
                ("bias", (self.columns,)),
            )
        )
        read, k = _normed(data, gain, self.norm), te.reduce_axis((0, self.depth), "k")

        def element(*at: Any) -> Any:
            place = (*at[:-1], k)
            return te.sum(read[place] * weight[k, at[-1]], axis=k)

        sums = te.compute((*self.shape, self.columns), element, name="matmul")
        result = topi.nn.relu(topi.add(sums, bias)) if self.after else sums
        function = te.create_prim_func([data, weight, gain, bias, result], index_dtype_override="int64")
        function = function.with_attrs({"global_symbol": "main", "layout_free_buffers": [1, 2]})
        return tvm.IRModule({"main": function})


class Image(msgspec.Struct, frozen=True):
    """A convolution."""

    case: Case

    def module(self) -> Any:
        """The workload."""
        return workload(self.case)


class Bytes(msgspec.Struct, frozen=True):
    """A product of bytes `[*batches, rows, depth]`, with weights of each batch's own if there are `batches`, and what
    follows it: "" or "scaled", floats rounded to bytes again.
    """

    batches: tuple[int, ...]
    rows: int
    columns: int
    depth: int
    after: str = ""

    def module(self) -> Any:
        """The workload."""
        from tvm import te

        from kintune.compiler.kernels.contraction import BYTE_SUMS, Operator

        data = te.placeholder((*self.batches, self.rows, self.depth), "uint8", "data")
        weight = te.placeholder((*self.batches, self.depth, self.columns), "int8", "weight")
        k = te.reduce_axis((0, self.depth), "k")
        lead = len(self.batches)

        def element(*at: Any) -> Any:
            place, by = (*at[:-1], k), (*at[:lead], k, at[-1])
            return te.sum(data[place].astype("int32") * weight[by].astype("int32"), axis=k)

        text = {BYTE_SUMS: Operator(batched=bool(lead)).text}
        sums = te.compute((*self.batches, self.rows, self.columns), element, name="sums", attrs=text)
        return _followed([data, weight], sums, self.after)


class BytesOfImage(msgspec.Struct, frozen=True):
    """A convolution of bytes, around whose data there are bytes `point`."""

    case: Case
    point: int = 0
    after: str = ""

    def module(self) -> Any:
        """The workload."""
        from tvm import te, topi

        from kintune.compiler.kernels.contraction import BYTE_SUMS, Operator

        case = self.case
        data = te.placeholder((case.images, case.height, case.width, case.channels), "uint8", "data")
        weight = te.placeholder((*case.kernel, case.channels, case.filters), "int8", "weight")
        top, left, bottom, right = case.pads
        around = data
        if any(case.pads):
            before, after = (0, top, left, 0), (0, bottom, right, 0)
            around = topi.nn.pad(data, before, after, pad_value=self.point, name="pad_temp")
        (down, right), (apart, across) = (
            (each, each) if isinstance(each, int) else each for each in (case.stride, case.dilation)
        )
        i, j, c = (
            te.reduce_axis((0, size), name) for size, name in zip((*case.kernel, case.channels), "ijc", strict=True)
        )

        def element(n: Any, y: Any, x: Any, f: Any) -> Any:
            place = n, y * down + i * apart, x * right + j * across, c
            return te.sum(around[place].astype("int32") * weight[i, j, c, f].astype("int32"), axis=[i, j, c])

        text = Operator(True, (down, right), (apart, across), case.pads, self.point).text
        shape = (case.images, *extents(case), case.filters)
        sums = te.compute(shape, element, name="sums", attrs={BYTE_SUMS: text})
        return _followed([data, weight], sums, self.after)


def _followed(given: list[Any], sums: Any, after: str) -> Any:
    """The workload of sums of bytes and what follows them, as the lowering makes it."""
    import tvm
    from tvm import te, topi

    result, parameters = sums, list(given)
    if after:
        bias = te.placeholder((sums.shape[-1],), "int32", "bias")
        scaled = topi.multiply(topi.cast(topi.add(sums, bias), "float32"), tvm.tirx.const(1 / 512, "float32"))
        result = topi.cast(topi.clip(topi.round(scaled), 0, 255), "uint8")
        parameters.append(bias)
    function = te.create_prim_func([*parameters, result], index_dtype_override="int64")
    function = function.with_attrs({"global_symbol": "main", "layout_free_buffers": [1]})
    return tvm.IRModule({"main": function})


class FewBits(msgspec.Struct, frozen=True):
    """A product with blockwise quantised weights, whose zero points are none, "packed" or "real".

    The data is that of a `norm`, if any: "rms" or "layer".
    """

    shape: tuple[int, ...]
    columns: int
    depth: int
    bits: int
    block: int
    zeros: str = ""
    after: bool = False
    norm: str = ""

    def module(self) -> Any:
        """The workload."""
        import tvm
        from tvm import te, topi

        from kintune.models.blockwise import ANNOTATION, Blockwise
        from kintune.models.blockwise_kernel import weight_of

        found = Blockwise(self.bits, self.block, self.depth, self.zeros)
        data = te.placeholder((*self.shape, self.depth), "float32", "data")
        integers = te.placeholder((found.depth * self.bits // 8, self.columns), "uint8", "integers")
        scales = te.placeholder((found.blocks, self.columns), "float32", "scales")
        shape = (-(-found.blocks * self.bits // 8) if self.zeros == "packed" else found.blocks, self.columns)
        points = te.placeholder(shape, "uint8" if self.zeros == "packed" else "float32", "points")
        zeros = [points] if self.zeros else []
        gain = te.placeholder((self.depth,), "float32", "gain")
        read = _normed(data, gain, self.norm) if self.norm else data
        k = te.reduce_axis((0, tvm.tirx.IntImm("int64", self.depth)), "k")

        def element(*at: Any) -> Any:
            place = (*at[:-1], k)
            return te.sum(read[place] * weight_of(found, integers, scales, zeros, k, at[-1]), axis=k)

        sums = te.compute((*self.shape, self.columns), element, name="sums", attrs={ANNOTATION: found.text})
        parameters, result = [data, integers, scales, *zeros], sums
        if self.after:
            bias = te.placeholder((self.columns,), "float32", "bias")
            parameters.append(bias)
            result = topi.nn.relu(topi.add(sums, bias))
        parameters += [gain] if self.norm else []
        function = te.create_prim_func([*parameters, result], index_dtype_override="int64")
        marks = list(range(1, 3 + len(zeros)))
        function = function.with_attrs({"global_symbol": "main", "layout_free_buffers": marks})
        return tvm.IRModule({"main": function})


def _normed(data: Any, gain: Any, norm: str) -> Any:
    """The norm of data over the last axis, in the blocks that lowering makes."""
    import tvm
    from tvm import te

    *lead, depth = data.shape
    portion = tvm.tirx.const(1 / int(depth), "float32")
    moved = data
    if norm == "layer":
        j = te.reduce_axis((0, depth), "j")
        total = te.compute(lead, lambda *s: te.sum(data[(*s, j)], axis=j), name="norm_sum")
        mean = te.compute(lead, lambda *s: total[s] * portion, name="norm_mean")
        moved = te.compute(data.shape, lambda *at: data[at] - mean[at[:-1]], name="moved")
    k = te.reduce_axis((0, depth), "k1")

    def square(*s: Any) -> Any:
        place = (*s, k)
        return te.sum(moved[place] * moved[place], axis=k)

    squares = te.compute(lead, square, name="norm_squares")
    one, epsilon = tvm.tirx.const(1.0, "float32"), tvm.tirx.const(1e-3, "float32")
    inverse = te.compute(lead, lambda *s: one / tvm.tirx.sqrt(squares[s] * portion + epsilon), name="norm_inverse")
    return te.compute(data.shape, lambda *at: moved[at] * inverse[at[:-1]] * gain[at[-1]], name="norm")


_edges = st.sampled_from(EDGES)
_deep = st.sampled_from((*EDGES, 3, 130))
_epilogues = st.sampled_from((False, True, "gelu", "residual", "turned"))
_lead = st.one_of(st.tuples(_edges), st.tuples(st.sampled_from((2, 3)), st.sampled_from((1, 11, 16, 17))))
_KERNELS = st.sampled_from(((3, 3), (5, 5), (1, 3), (3, 1), (1, 8), (7, 2)))
_PADS = st.sampled_from(
    ((0, 0, 0, 0), (1, 1, 1, 1), (0, 1, 0, 1), (2, 0, 1, 3), (2, 4, 2, 4), (0, 14, 0, 14), (1, 40, 1, 40))
)
_AFTER = st.sampled_from(((), ("bias",), ("bias", "relu"), ("bias", "residual", "silu"), ("residual", "twice")))


def _images(**changed: Any) -> st.SearchStrategy[Case]:
    """Convolutions with results, whose extents are drawn at edges, but for those that are `changed`."""
    drawn: dict[str, Any] = {
        "height": st.sampled_from((1, 2, 5, 8, 9)),
        "width": st.sampled_from((3, 15, 16, 17, 31)),
        "channels": st.sampled_from((1, 3, 16, 17, 32)),
        "filters": _edges,
        "images": st.sampled_from((1, 1, 2)),
        "kernel": _KERNELS,
        "stride": st.sampled_from((1, 1, 2, (1, 2), (3, 1))),
        "dilation": st.sampled_from((1, 2, (2, 1), 3, (1, 2), (1, 14))),
        "pads": _PADS,
        "after": _AFTER,
        **changed,
    }
    return st.builds(Case, **drawn).filter(lambda case: min(extents(case)) > 0)


def _grouped(channels: int, filters: int, groups: int, axis: bool, case: Case) -> Case:
    return msgspec.structs.replace(
        case, groups=groups, channels=groups * channels, filters=groups * filters, group_axis=axis
    )


_NONE, _ONE = st.just((0, 0, 0, 0)), st.just(1)
_SQUARE = st.just((3, 3))
_small = st.integers(1, 17)

_few_bits: Any = (
    _lead, _edges, st.sampled_from((1, 15, 16, 17, 31, 64, 200)), st.sampled_from((2, 4, 8)),
    st.sampled_from((16, 32, 64, 128)), st.sampled_from(("", "packed", "real")), st.booleans(),
)  # fmt: skip

SUMS: dict[str, st.SearchStrategy[Any]] = {
    "product": st.builds(Product, _lead, _edges, _deep, _epilogues),
    "one row": st.builds(
        Product, st.sampled_from(((1,), (1, 1))), _edges, st.sampled_from((64, 130, 3456)), _epilogues
    ),
    "weights across": st.builds(Product, _lead, _edges, _deep, _epilogues, st.just(True)),
    "rows of a norm": st.builds(
        RowsOfNorm, st.sampled_from(((1,), (3,), (16,), (2, 7))), _edges, _deep, st.booleans(),
        st.sampled_from(("rms", "layer")),
    ).filter(lambda each: each.depth > 1),
    "convolution": st.builds(Image, _images()),
    "few positions": st.builds(Image, _images(height=st.integers(1, 4), width=st.integers(1, 5))),
    "pointwise": st.builds(Image, _images(kernel=st.just((1, 1)), pads=_NONE, dilation=_ONE)),
    "one channel": st.builds(
        Image,
        _images(
            height=_ONE, width=st.just(700), channels=_ONE, kernel=st.just((1, 64)), stride=st.just((1, 16)),
            dilation=_ONE, pads=_NONE,
        ),
    ),
    "three by three": st.builds(
        Image,
        _images(
            height=_small, width=_small, channels=st.sampled_from((1, 16, 29, 32, 40)),
            filters=st.sampled_from((5, 16, 17, 48, 70)), images=st.sampled_from((1, 1, 3)), kernel=_SQUARE,
            stride=_ONE, dilation=_ONE, pads=st.tuples(*[st.integers(0, 3)] * 4),
        ),
    ),
    "groups": st.builds(
        Image,
        st.builds(
            _grouped, st.sampled_from((1, 2, 8, 13)), st.sampled_from((2, 5, 8, 24)), st.sampled_from((2, 3, 8)),
            st.just(True), _images(dilation=st.sampled_from((1, 2)), after=st.sampled_from(((), ("bias", "relu")))),
        ),
    ),
    "depthwise": st.builds(
        Image,
        st.builds(
            _grouped, _ONE, _ONE, st.sampled_from((2, 8, 15, 16, 17, 33, 72)), st.just(False),
            _images(width=st.sampled_from((1, 3, 15, 16, 17, 47))),
        ),
    ),
    "bytes": st.builds(Bytes, st.just(()), _edges, _edges, _deep, st.sampled_from(("", "scaled"))),
    "batched bytes": st.builds(
        Bytes, st.sampled_from(((3,), (2, 2))), _edges, _edges, _deep, st.sampled_from(("", "scaled"))
    ),
    "image of bytes": st.builds(
        BytesOfImage,
        _images(
            stride=st.sampled_from((1, 2, (1, 2))), dilation=st.sampled_from((1, 1, (2, 1), (1, 2))), after=st.just(())
        ),
        st.sampled_from((0, 7, 255)),
        st.sampled_from(("", "scaled")),
    ),
    "few bits": st.builds(FewBits, *_few_bits),
    "few bits of a norm": st.builds(FewBits, *_few_bits, st.sampled_from(("rms", "layer"))).filter(
        lambda each: each.depth > 1
    ),
}  # fmt: skip
"""The kinds of sums, each drawn with its extents at edges and with what follows it."""

_large: dict[str, Any] = {"height": 28, "width": 28, "channels": 64, "filters": 64}

WORTH: dict[str, Any] = {
    "product": Product((128,), 64, 256, True),
    "one row": Product((1,), 256, 256),
    "weights across": Product((64,), 64, 256, across=True),
    "rows of a norm": RowsOfNorm((3,), 256, 256, True, "rms"),
    "convolution": Image(Case(**_large, kernel=(5, 5), pads=(2, 2, 2, 2), after=("bias", "relu"))),
    "few positions": Image(Case(1, 8, 64, 64, kernel=(1, 3), pads=(0, 1, 0, 1))),
    "pointwise": Image(Case(**_large, kernel=(1, 1), pads=(0, 0, 0, 0), stride=2)),
    "one channel": Image(Case(1, 2000, 1, 64, kernel=(1, 400), stride=(1, 20), pads=(0, 0, 0, 0))),
    "three by three": Image(Case(**_large, after=("bias", "residual", "relu"))),
    "groups": Image(_grouped(16, 16, 4, True, Case(28, 28))),
    "depthwise": Image(_grouped(1, 1, 64, False, Case(28, 28))),
    "bytes": Bytes((), 64, 64, 64, "scaled"),
    "batched bytes": Bytes((4,), 60, 96, 64),
    "image of bytes": BytesOfImage(Case(**_large), 7, "scaled"),
    "few bits": FewBits((64,), 512, 512, 4, 32),
    "few bits of a norm": FewBits((3,), 512, 512, 4, 32, norm="rms"),
}
"""A workload of each kind that is large enough for all programs that compute it."""
