"""Winograd's convolution, F(2 x 2, 3 x 3) and F(4 x 4, 3 x 3): less arithmetic than the direct one.

Weights are transformed when the network is built, data and products when it runs.  What follows the convolution is
computed where the last transform has its values, if it is elementwise.  There are two programs.  Both write all loops,
so that a block of tiles stays in the cache from its data to its results.  `BlockedWinograd` multiplies in fp32,
`NarrowWinograd` in bf16.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import tvm

from kintune.compiler.kernels.contraction import Contraction
from kintune.compiler.kernels.epilogue import Epilogue
from kintune.compiler.kernels.instructions import PAIRS
from kintune.compiler.kernels.reading import find, joined
from kintune.compiler.kernels.stages import Stages, with_stages
from kintune.compiler.programs.choice_lists import ChoiceLists
from kintune.compiler.programs.kept_parameters import is_plain, keep
from kintune.compiler.programs.panel_form import AMX, DOT
from kintune.compiler.programs.panel_sum import BF16, NEEDED
from kintune.compiler.programs.winograd_blocked import Blocking, make_blocks
from kintune.compiler.programs.winograd_costs import OPERATIONS, estimated_cycles, promising
from kintune.compiler.programs.winograd_narrow import make_narrow_blocks
from kintune.compiler.programs.winograd_tiles import Geometry
from kintune.compiler.programs.winograd_transforms import KERNEL
from kintune.core.candidate import Axis, Decision
from kintune.errors import BuildError
from kintune.runtime.target import capabilities
from kintune.search.processor import Processor

__all__ = ["BlockedWinograd", "NarrowWinograd", "find_convolution"]

_SIZES = (4, 2)
_LANES = (16, 8, 4)
_SHARE = 0.8  # of the direct convolution's arithmetic, above which a variant is not offered
_BEHIND = 1.4  # times the estimate of the fastest size, above which a size is not offered
_SLOWER = 4.0  # an operation of a transform takes this many times as long as one of a product

_NARROW_SIZE, _NARROW_LANES = 2, PAIRS[0].lanes
_NARROW_SLOWER = 8.0  # as `_SLOWER`, where products are of bf16

_NONE = "no convolution that Winograd's transforms compute"

_ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14)
_VECTORS = (1, 2, 3, 4)
_BLOCKS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
_MOST_VALUES = 1 << 23  # of a block of tiles and its products
_PARTS = (1, 2, 4, 8)
_FIRST = 32  # candidates of the rule


class _Blocked:
    """What the programs have in common.

    The decisions are the rows and vectors in registers, the blocks of tiles and the parts of the filters
    (`winograd_blocked`).
    """

    name = ""
    size = 4  # bytes of a value that is multiplied

    def saved_flops(self, module: tvm.IRModule, variant: str) -> float:
        """Return how many FLOPs fewer one run takes than the direct convolution.

        Raises:
            BuildError: the workload has no such convolution, or there is no such variant of it.
        """
        found = find_convolution(module)
        if found is None:
            raise BuildError(_NONE)
        g = _of_variant(found, variant)
        data, results = OPERATIONS[g.m]
        transforms = data * g.channels + results * g.filters
        return found.flops - g.tiles * (2.0 * g.places * g.channels * g.filters + transforms)

    def axes(self, module: tvm.IRModule, variant: str) -> tuple[Axis, ...]:
        """Return the choices of rows, vectors, blocks and parts.

        Raises:
            BuildError: the workload has no such convolution, or there is no such variant of it.
        """
        return self._choices(_found(module, variant)).axes()

    def write(self, module: tvm.IRModule, variant: str, decisions: tuple[Decision, ...]) -> tvm.IRModule:
        """Return the workload with the program in the place of its convolution.

        Raises:
            BuildError: the workload has no such convolution, there is no such variant of it, or parts are not whole.
        """
        blocking = Blocking(*self._choices(_found(module, variant)).picked(decisions))

        def stages(convolution: Contraction, g: Geometry, epilogue: Epilogue | None) -> Stages:
            if g.filters % (blocking.vectors * g.lanes * blocking.parts):
                raise BuildError(
                    f"{blocking.parts} parts of {blocking.vectors} vectors do not divide {g.filters} filters"
                )
            return self._made(convolution, g, blocking, epilogue)

        return _written(module, variant, stages)

    def rule(self, module: tvm.IRModule, variant: str, machine: Processor) -> Sequence[tuple[Decision, ...]]:
        """Return the decisions of the least estimated times."""
        g = _found(module, variant)
        choices = self._choices(g)
        return list(map(choices.decisions, promising(g, machine, choices.values, self.size)[:_FIRST]))

    def _choices(self, g: Geometry) -> ChoiceLists:
        return ChoiceLists(self.name, _values(g))

    def _made(self, found: Contraction, g: Geometry, blocking: Blocking, epilogue: Epilogue | None) -> Stages:
        return make_blocks(found, g, blocking, epilogue)


class BlockedWinograd(_Blocked):
    """The program that multiplies in fp32.

    A variant is the size of a tile and the channels that are computed at once, such as "4x16".
    """

    name = "winograd_blocked"
    version = 5
    patterns: tuple[str, ...] = ()

    def variants(self, module: tvm.IRModule, target: tvm.target.Target) -> Sequence[str]:
        """Return a variant for each promising size of tiles, the most promising first.

        There is none where other blocks would be left without a schedule.
        """
        variants = _variants(module, target)
        return variants if variants and _is_alone(module) else ()


class NarrowWinograd(_Blocked):
    """The program that multiplies in bf16, with `vdpbf16ps`.

    Tiles are of 2 x 2 results.  Those of 4 x 4 would be off by 2 % where a direct convolution in bf16 is off by 0.2 %,
    and these by 0.3 % (normal data and weights, norm of the difference over norm of the result).
    """

    name = "winograd_narrow"
    version = 2
    patterns: tuple[str, ...] = ()
    precision = BF16
    size = 2

    def variants(self, module: tvm.IRModule, target: tvm.target.Target) -> Sequence[str]:
        """Return the one variant, where it computes clearly less than a direct convolution.

        There is none where the CPU has AMX for bf16: its products are so fast that the transforms would cost more.
        """
        can = capabilities(target)
        if not can.has(NEEDED[DOT]) or can.has(NEEDED[AMX]):
            return ()
        found = find_convolution(module)
        if found is None or _share(_geometry(found, _NARROW_SIZE, _NARROW_LANES), found, _NARROW_SLOWER) > _SHARE:
            return ()
        return (f"{_NARROW_SIZE}x{_NARROW_LANES}",) if _is_alone(module) else ()

    def instructions(self, variant: str) -> tuple[str, ...]:
        """Return the extensions that kernels need, beyond those which any kernel may use."""
        return NEEDED[DOT]

    def keepable(self, module: tvm.IRModule, *, rounded: bool = False) -> frozenset[int]:
        """Return the positions of the parameters that may be of bf16: data, what is stored, and what is read with it.

        None is rounded in any case: data is transformed before that.

        Raises:
            BuildError: the workload has no such convolution.
        """
        module, found, epilogue = _matched(module)
        if rounded:
            return frozenset()
        function = module["main"]
        read = [found.data, *([] if epilogue is None else epilogue.operands)]
        stored = found.result if epilogue is None else epilogue.target
        return frozenset(
            at
            for at, parameter in enumerate(function.params)
            if at != found.position
            and str(parameter.dtype) == "float32"
            and any(parameter.same_as(each) for each in (*read, stored))
            and is_plain(function, at)
        )

    def write(
        self, module: tvm.IRModule, variant: str, decisions: tuple[Decision, ...], kept: Collection[int] = ()
    ) -> tvm.IRModule:
        """Return the workload with the program in the place of its convolution.

        The parameters at the positions `kept`, which must be among `keepable`, are of bf16 instead of fp32.

        Raises:
            BuildError: the workload has no such convolution, there is no such variant of it, or parts are not whole.
        """
        written = super().write(module, variant, decisions)
        return tvm.IRModule({"main": keep(written["main"], kept)}, attrs=written.attrs) if kept else written

    def _made(self, found: Contraction, g: Geometry, blocking: Blocking, epilogue: Epilogue | None) -> Stages:
        return make_narrow_blocks(found, g, blocking, epilogue)


def find_convolution(module: tvm.IRModule) -> Contraction | None:
    """The sum of a workload (function `main`), where it has exactly one: a convolution of 3 x 3 with stride 1."""
    found = find(module)
    if found is None:
        return None
    reaches = (found.rows, found.columns)
    is_plain = all((each.kernel, each.stride, each.dilation) == (KERNEL, 1, 1) for each in reaches)
    return found if is_plain else None


def _is_alone(module: tvm.IRModule) -> bool:
    """Whether nothing is left beside the convolution, its padding and what is computed with it."""
    _, found, epilogue = _matched(module)
    return len(found.nests) == len(found.replaced) + (epilogue is not None)


def _values(g: Geometry) -> dict[str, tuple[int, ...]]:
    """Rows, vectors, blocks and parts."""
    most = g.filters // g.lanes
    enough = -(-g.places * g.tiles * (g.channels + g.filters) // _MOST_VALUES)
    return {
        "rows": tuple(rows for rows in _ROWS if rows <= g.tiles),
        "vectors": tuple(vectors for vectors in _VECTORS if most % vectors == 0),
        "blocks": tuple(blocks for blocks in _BLOCKS if enough <= blocks <= g.tiles) or _BLOCKS[-1:],
        "parts": tuple(parts for parts in _PARTS if most % parts == 0),
    }


def _variants(module: tvm.IRModule, target: tvm.target.Target) -> Sequence[str]:
    """The variants whose tiles need clearly less arithmetic than the direct convolution, the fastest first.

    Sizes that are estimated to be much slower than the fastest are left out.
    """
    found = find_convolution(module)
    if found is None:
        return ()
    can = capabilities(target)
    machine = Processor.of(can.extensions, can.threads)
    lanes = machine.lanes
    if lanes not in _LANES:
        return ()
    sizes = [size for size in _SIZES if _share(_geometry(found, size, lanes), found) <= _SHARE]
    cycles = {size: _least_cycles(_geometry(found, size, lanes), machine) for size in sizes}
    least = min(cycles.values(), default=0.0)
    return tuple(f"{size}x{lanes}" for size in sorted(sizes, key=cycles.__getitem__) if cycles[size] <= _BEHIND * least)


def _least_cycles(g: Geometry, machine: Processor) -> float:
    return estimated_cycles(g, promising(g, machine, tuple(_values(g).values()))[0], machine)


def _geometry(convolution: Contraction, size: int, lanes: int) -> Geometry:
    high, wide = -(-convolution.rows.results // size), -(-convolution.columns.results // size)
    vectors = -(-convolution.filters // lanes)
    return Geometry(
        size, lanes, convolution.images, high, wide, convolution.channels, vectors * lanes, convolution.index_type
    )


def _share(g: Geometry, convolution: Contraction, slower: float = _SLOWER) -> float:
    """The arithmetic over that of the direct convolution; an operation of a transform counts `slower` times."""
    data, results = OPERATIONS[g.m]
    transforms = slower * (data * g.channels + results * g.filters)
    return g.tiles * (2 * g.places * g.channels * g.filters + transforms) / convolution.flops


def _found(module: tvm.IRModule, variant: str) -> Geometry:
    """The geometry of a variant.

    Raises:
        BuildError: the workload has no such convolution, or there is no such variant of it.
    """
    found = find_convolution(module)
    if found is None:
        raise BuildError(_NONE)
    return _of_variant(found, variant)


def _of_variant(found: Contraction, variant: str) -> Geometry:
    size, _, lanes = variant.partition("x")
    if not (size.isdecimal() and lanes.isdecimal() and int(size) in _SIZES and int(lanes) in _LANES):
        raise BuildError(f"Winograd's convolution has no variant {variant}")
    return _geometry(found, int(size), int(lanes))


def _written(
    module: tvm.IRModule, variant: str, make: Callable[[Contraction, Geometry, Epilogue | None], Stages]
) -> tvm.IRModule:
    """The workload with the stages in the place of the convolution, its padding, and what follows if possible."""
    module, found, epilogue = _matched(module)
    return with_stages(module, found, make(found, _of_variant(found, variant), epilogue), epilogue)


def _matched(module: tvm.IRModule) -> tuple[tvm.IRModule, Contraction, Epilogue | None]:
    """The workload with what follows in one block, its convolution, and that block if it can be computed with it.

    Raises:
        BuildError: the workload has no such convolution.
    """
    found = find_convolution(module)
    if found is None:
        raise BuildError(_NONE)
    whole = joined(module)
    return (
        whole
        if whole is not None and (whole.epilogue is None or whole.epilogue.is_vectorised)
        else (module, found, None)
    )
