from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from kintune.search.access_patterns import OperandAccess

if TYPE_CHECKING:
    from tests.support.workloads import TinyConv

pytestmark = pytest.mark.tvm


def test_a_convolution_moves_its_data_by_rows_columns_and_taps(tiny_conv: TinyConv) -> None:
    from kintune.compiler.space.loop_analysis import access_patterns

    patterns = access_patterns(tiny_conv.module, "conv2d_nhwc")
    assert patterns is not None
    assert patterns.extents == (1, 7, 7, 16, 5, 5, 12)
    assert patterns.reduces == (False,) * 4 + (True,) * 3
    data, kernel, output = patterns.accesses
    assert data == OperandAccess(
        shape=(1, 11, 11, 12),
        steps=((1, 0, 0, 0, 0, 0, 0), (0, 1, 0, 0, 1, 0, 0), (0, 0, 1, 0, 0, 1, 0), (0, 0, 0, 0, 0, 0, 1)),
        width=4,
    )
    assert kernel.shape == (5, 5, 12, 16)
    assert kernel.steps[3] == (0, 0, 0, 1, 0, 0, 0)
    assert kernel.weight
    assert output.written
    assert [access.written for access in (data, kernel)] == [False, False]


def test_what_may_be_laid_out_is_a_weight(tiny_conv: TinyConv) -> None:
    import tvm

    from kintune.compiler.space.loop_analysis import access_patterns

    fixed = tiny_conv.module["main"].without_attr("layout_free_buffers")
    for function, weight in ((fixed, False), (fixed.with_attr("layout_free_buffers", [1]), True)):
        patterns = access_patterns(tvm.IRModule({"main": function}), "conv2d_nhwc")
        assert patterns is not None
        assert [access.weight for access in patterns.accesses] == [False, weight, False]


def test_strides_and_indices_that_are_not_linear() -> None:
    import tvm
    from tvm import te

    from kintune.compiler.space.loop_analysis import access_patterns

    data = te.placeholder((32, 8), name="data", dtype="float16")
    k = te.reduce_axis((0, 4), name="k")
    total = te.compute((8, 8), lambda i, j: te.sum(data[i * 3 + k, j // 2], axis=k), name="total")
    function = te.create_prim_func([data, total]).with_attr("global_symbol", "main")
    patterns = access_patterns(tvm.IRModule({"main": function}), "total")
    assert patterns is not None
    source = patterns.accesses[0]
    assert source.steps == ((3, 0, 1), (0, 1, 0))
    assert source.width == 2


def test_the_block_that_sketches_tile_is_found(tiny_conv: TinyConv) -> None:
    from kintune.compiler.space.loop_analysis import tiled_block

    assert {tiled_block(sketch) for sketch in tiny_conv.sketches if b"SSRSRS" in sketch.trace} == {"conv2d_nhwc"}
    bare = msgspec.structs.replace(tiny_conv.sketches[0], trace=b'{"insts": [], "sampled": []}')
    assert tiled_block(bare) is None


def test_a_block_that_is_not_there_is_named(tiny_conv: TinyConv) -> None:
    from kintune.compiler.space.loop_analysis import access_patterns

    with pytest.raises(ValueError, match="no block nowhere"):
        access_patterns(tiny_conv.module, "nowhere")


def test_the_sketches_of_a_convolution_have_analytic_features(tiny_conv: TinyConv) -> None:
    from kintune.compiler.space.loop_analysis import access_patterns
    from kintune.search.features.field import fields_of
    from kintune.search.processor import Processor

    fields = fields_of(tiny_conv.sketches, access_patterns(tiny_conv.module, "conv2d_nhwc"), Processor(8, 16, 2))
    fielded = {sketch.digest for field in fields for sketch in field.encoding.sketches}
    assert fielded == {sketch.digest for sketch in tiny_conv.sketches if b"SSRSRS" in sketch.trace}
    assert fielded
    assert not any(field.settled for field in fields)  # where the padding is computed depends on the tiles
