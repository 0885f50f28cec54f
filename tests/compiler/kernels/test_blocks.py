"""The blocks of a function are read where no schedule has changed its loops, and no others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.tvm


def module_of(shape: tuple[int, ...] = (6, 4)) -> Any:
    """A sum, and a block that follows it."""
    import tvm
    from tvm import te

    data = te.placeholder((*shape, 3), "float32", "data")
    k = te.reduce_axis((0, 3), "k")
    sums = te.compute(shape, lambda *at: te.sum(data[(*at, k)], axis=k), name="sums")
    after = te.compute(shape, lambda *at: sums[at] * sums[at], name="after")
    function = te.create_prim_func([data, after], index_dtype_override="int64")
    return tvm.IRModule({"main": function.with_attr("global_symbol", "main")})


def test_blocks_are_in_order_with_their_variables() -> None:
    from kintune.compiler.kernels.blocks import constant_shape, loads_in, nests_of

    sums, after = nests_of(module_of()["main"]) or []
    assert [str(each.block.name_hint) for each in (sums, after)] == ["sums", "after"]
    assert (sums.extents, after.extents) == ((6, 4, 3), (6, 4))
    assert [len(each.variables(reducing=kind)) for each in (sums, after) for kind in (False, True)] == [2, 1, 2, 0]
    assert sums.variables(reducing=True)[0].same_as(sums.block.iter_vars[2].var)
    buffer = sums.block.body.buffer
    assert (len(loads_in(after.block.body, buffer)), len(loads_in(sums.block.body))) == (2, 2)
    assert [load.source.same_as(buffer) for load in loads_in(sums.block.body, buffer)] == [True]
    assert constant_shape(buffer) == (6, 4)


def test_shapes_that_are_known_only_in_a_run_are_none() -> None:
    from tvm import tirx

    from kintune.compiler.kernels.blocks import constant_shape

    assert constant_shape(tirx.decl_buffer((tirx.Var("n", "int64"), 3), "float32")) is None


def on_loop(change: Callable[[Any, Any], Any], block: str = "after", at: int = 0) -> Callable[[Any], None]:
    def apply(schedule: Any) -> None:
        change(schedule, schedule.get_loops(schedule.get_sblock(block))[at])

    return apply


def annotate_block(schedule: Any) -> None:
    schedule.annotate(schedule.get_sblock("after"), "kept", 1)


def swap(schedule: Any) -> None:
    schedule.reorder(*schedule.get_loops(schedule.get_sblock("after"))[::-1])


def into_another(schedule: Any) -> None:
    sums, after = (schedule.get_sblock(name) for name in ("sums", "after"))
    schedule.compute_at(sums, schedule.get_loops(after)[0])


def decompose(schedule: Any) -> None:
    sums = schedule.get_sblock("sums")
    schedule.decompose_reduction(sums, schedule.get_loops(sums)[-1])


CHANGES: dict[str, Callable[[Any], None]] = {
    "parallel": on_loop(lambda schedule, loop: schedule.parallel(loop)),
    "vectors": on_loop(lambda schedule, loop: schedule.vectorize(loop), at=1),
    "unrolled": on_loop(lambda schedule, loop: schedule.unroll(loop), "sums", 1),
    "bound": on_loop(lambda schedule, loop: schedule.bind(loop, "threadIdx.x")),
    "annotated": on_loop(lambda schedule, loop: schedule.annotate(loop, "kept", 1)),
    "split": on_loop(lambda schedule, loop: schedule.split(loop, [2, None])),
    "split with a rest": on_loop(lambda schedule, loop: schedule.split(loop, [4, None])),
    "fused": lambda schedule: schedule.fuse(*schedule.get_loops(schedule.get_sblock("after"))),
    "another order": swap,
    "one inside of the other": into_another,
    "a start of its own": decompose,
}


@pytest.mark.parametrize("shape", [(6, 4), (4, 4)])
@pytest.mark.parametrize("change", CHANGES)
def test_what_a_schedule_has_changed_is_not_read(change: str, shape: tuple[int, ...]) -> None:
    from kintune.compiler.kernels.blocks import nests_of
    from kintune.compiler.tir import plain_schedule

    schedule = plain_schedule(module_of(shape))
    CHANGES[change](schedule)
    assert nests_of(schedule.mod["main"]) is None


def test_an_annotation_of_a_block_changes_no_loops() -> None:
    from kintune.compiler.kernels.blocks import nests_of
    from kintune.compiler.tir import plain_schedule

    schedule = plain_schedule(module_of())
    annotate_block(schedule)
    assert len(nests_of(schedule.mod["main"]) or []) == 2


@pytest.mark.parametrize(
    ("text", "found"),
    [("x + y + 3", 3), ("y + x", 0), ("x + y - 5", -5), ("2 * x + y", None), ("x", None), ("x - y", None), ("7", None)],
)
def test_offsets_are_what_is_added_to_the_variables(text: str, found: int | None) -> None:
    from tvm import tirx

    from kintune.compiler.kernels.blocks import is_offset_of

    x, y = tirx.Var("x", "int64"), tirx.Var("y", "int64")
    index = eval(text, {}, {"x": x, "y": y})
    index = tirx.const(index, "int64") if isinstance(index, int) else index
    assert is_offset_of(index, (x, y)) == found
    assert is_offset_of(tirx.const(4, "int64"), ()) == 4


def rebuilt(function: Any, changed: Any) -> Any:
    """The function whose first block, with its loops, is replaced by a statement."""
    from kintune.compiler.kernels.blocks import nests_of
    from kintune.compiler.kernels.loops import as_root, sequence

    first, second = nests_of(function) or []
    return function.with_body(as_root(sequence([changed(first), second.statement]), function.body.block.alloc_buffers))


def test_what_is_written_otherwise_is_not_read() -> None:
    """Loops from 1, over a part, or without a variable; a buffer inside, or another name of one; no blocks at all."""
    import tvm
    from tvm import tirx

    from kintune.compiler.kernels.blocks import nests_of
    from kintune.compiler.kernels.cutting import cut
    from kintune.compiler.kernels.loops import buffer

    function = module_of()["main"]

    def late(nest: Any) -> Any:
        loop = nest.statement
        return tirx.For(loop.loop_var, tirx.IntImm("int64", 1), loop.extent, loop.kind, loop.body)

    def short(nest: Any) -> Any:
        loop = nest.statement
        return tirx.For(loop.loop_var, loop.min, tirx.IntImm("int64", 3), loop.kind, loop.body)

    def around(nest: Any, inside: Callable[[Any], Any]) -> Any:
        inner = nest.statement
        loops = []
        while isinstance(inner, tirx.For):
            loops.append(inner)
            inner = inner.body
        found = inside(inner)
        for each in reversed(loops):
            found = tirx.For(each.loop_var, each.min, each.extent, each.kind, found)
        return found

    def remade(block: Any, realize: Any, *buffers: Any) -> Any:
        made = tvm.s_tir.SBlock(
            block.iter_vars, block.reads, block.writes, block.name_hint, block.body, block.init, *buffers
        )
        return tvm.s_tir.SBlockRealize(realize.iter_values, realize.predicate, made)

    def with_a_buffer(nest: Any) -> Any:
        own = buffer("own", (1,), "float32")
        return around(nest, lambda realize: remade(nest.block, realize, [own]))

    def with_another_name(nest: Any) -> Any:
        (whole,) = nest.block.writes
        alias = tvm.s_tir.MatchBufferRegion(tirx.decl_buffer((1, 1), "float32", "alias"), whole)
        return around(nest, lambda realize: remade(nest.block, realize, [], [alias]))

    def repeated(nest: Any) -> Any:
        loop = nest.statement
        more = tirx.Var("more", "int64")
        return around(nest, lambda realize: tirx.For(more, loop.min, loop.extent, loop.kind, realize))

    assert len(nests_of(rebuilt(function, lambda nest: around(nest, lambda realize: realize))) or []) == 2
    for changed in (late, short, with_a_buffer, with_another_name, repeated):
        assert nests_of(rebuilt(function, changed)) is None
    nothing = tirx.PrimFunc([], tirx.Evaluate(tirx.IntImm("int32", 0)))
    assert nests_of(nothing) is None
    assert cut(nothing) is None
