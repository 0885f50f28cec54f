from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.errors import BuildError
from tests.support.convolutions import Case, workload
from tests.support.examples import compiled_examples
from tests.support.targets import cpu_target

pytestmark = pytest.mark.tvm


def product(*shape: int, columns: int, reduced: int, epilogue: str = "relu", transposed: bool = False) -> Any:
    """A product of `shape` rows with weights, and what follows it."""
    import tvm
    from tvm import te, topi

    a = te.placeholder((*shape, reduced), name="a")
    w = te.placeholder((columns, reduced) if transposed else (reduced, columns), name="w")
    bias = te.placeholder((columns,), name="bias")
    k = te.reduce_axis((0, reduced), name="k")

    def at(*indices: Any) -> Any:
        weight = w[indices[-1], k] if transposed else w[k, indices[-1]]
        return te.sum(a(*indices[:-1], k) * weight, axis=k)

    matmul = te.compute((*shape, columns), at, name="matmul", attrs={"layout_free_placeholders": [w]})
    last = {
        "none": lambda: matmul,
        "relu": lambda: topi.nn.relu(topi.add(matmul, bias)),
        "gelu": lambda: topi.multiply(topi.add(matmul, bias), topi.add(topi.erf(matmul), 1.0)),
        "residual": lambda: topi.add(topi.add(matmul, bias), matmul),
    }[epilogue]()
    function = te.create_prim_func([a, w, bias, last]).with_attr("layout_free_buffers", [1])
    return tvm.IRModule({"main": function.with_attr("global_symbol", "main")})


def pointwise(size: int, stride: int, channels: int, filters: int) -> Any:
    """A convolution of 1 x 1 on images with channels last."""
    import tvm
    from tvm import te, topi

    data = te.placeholder((1, size, size, channels), name="data")
    w = te.placeholder((1, 1, channels, filters), name="w")
    conv = topi.nn.conv2d_nhwc(data, w, stride, 0, 1)
    function = te.create_prim_func([data, w, topi.nn.relu(conv)]).with_attr("layout_free_buffers", [1])
    return tvm.IRModule({"main": function.with_attr("global_symbol", "main")})


def outputs(module: Any) -> np.ndarray[Any, Any]:
    """What a module computes of inputs that are always the same."""
    import tvm

    rng = np.random.default_rng(0)
    arguments = [
        tvm.runtime.tensor(rng.standard_normal([int(n) for n in p.shape], dtype=np.float32))
        for p in module["main"].params
    ]
    tvm.compile(module, cpu_target())["main"](*arguments)
    return arguments[-1].numpy()  # type: ignore[no-any-return]


def test_rows_beyond_the_last_are_not_stored() -> None:
    check(product(1, 197, columns=48, reduced=40), [(0, 0, 0), (0, 3, 1), (1, 1, 0)])


@compiled_examples(20, deadline=None)
@given(
    st.sampled_from([(9,), (13,), (1, 128), (3, 17), (2, 1, 11), (64,)]),
    st.sampled_from([8, 16, 24, 48, 64, 96, 6, 15, 21, 40, 47, 88, 150]),
    st.sampled_from([1, 3, 64, 130]),
    st.sampled_from(["none", "relu", "gelu", "residual"]),
    st.booleans(),
    st.data(),
)
def test_a_tiled_product_computes_what_the_product_does(
    shape: tuple[int, ...], columns: int, reduced: int, epilogue: str, transposed: bool, data: st.DataObject
) -> None:
    module = product(*shape, columns=columns, reduced=reduced, epilogue=epilogue, transposed=transposed)
    check(module, [drawn(module, data)])


def test_columns_beyond_the_last_are_not_stored() -> None:
    check(product(1, 40, columns=43, reduced=40), [(0, 0, 0), (0, 3, 1), (1, 1, 0), (2, 0, 1)])
    check(pointwise(9, 1, 24, 20), [(0, 0, 0), (1, 1, 1)])


@compiled_examples(12, deadline=None)
@given(
    st.sampled_from([(9,), (13,), (3, 17), (2, 1, 11)]),
    st.sampled_from([16, 48, 64]),
    st.sampled_from([3072, 3456, 4096]),
    st.sampled_from(["none", "relu", "gelu", "residual"]),
    st.data(),
)
def test_a_sum_in_parts_is_the_same_but_for_rounding(
    shape: tuple[int, ...], columns: int, reduced: int, epilogue: str, data: st.DataObject
) -> None:
    module = product(*shape, columns=columns, reduced=reduced, epilogue=epilogue)
    check(module, [drawn(module, data, "8x16deep")], "8x16deep")


@pytest.mark.parametrize(("size", "stride"), [(14, 1), (14, 2), (9, 2)])
def test_a_pointwise_convolution_is_such_a_product(size: int, stride: int) -> None:
    check(pointwise(size, stride, 24, 32), [(0, 0, 0), (2, 2, 1)])


def test_a_pointwise_convolution_of_one_row_may_leave_places_out() -> None:
    case = Case(height=1, width=17, channels=24, filters=32, kernel=(1, 1), stride=(1, 2), pads=(0, 0, 0, 0))
    check(workload(case), [(0, 0, 0), (2, 1, 1)])


def drawn(module: Any, data: st.DataObject, variant: str = "8x16") -> tuple[int, ...]:
    from kintune.compiler.programs.tiled_product import TiledProduct

    program = TiledProduct()
    axes = program.axes(module, variant)
    assert axes is not None
    return tuple(data.draw(st.integers(0, len(axis.values) - 1)) for axis in axes)  # type: ignore[union-attr]


def check(module: Any, places: list[tuple[int, ...]], variant: str = "8x16") -> None:
    from kintune.compiler.programs.tiled_product import TiledProduct

    program = TiledProduct()
    axes: Any = program.axes(module, variant)
    expected = outputs(module)
    for chosen in places:
        try:
            decisions = tuple(axis.values[at] for axis, at in zip(axes, chosen, strict=True))
            written = program.write(module, variant, decisions)
        except BuildError as error:
            assert "do not divide" in str(error)  # noqa: PT017
            continue
        np.testing.assert_allclose(outputs(written), expected, rtol=2e-4, atol=2e-4)


def test_it_is_offered_for_products_with_weights_alone() -> None:
    from kintune.compiler.programs.tiled_product import TiledProduct

    program = TiledProduct()
    large = product(128, columns=64, reduced=256)
    assert program.variants(large, cpu_target()) == ("8x16",)
    assert program.variants(large, cpu_target("sapphirerapids")) == ("16x32",)
    deep = product(128, columns=64, reduced=3072)
    assert program.variants(deep, cpu_target("sapphirerapids")) == ("16x32", "16x32deep")
    assert program.variants(product(128, columns=64, reduced=3073), cpu_target()) == ("8x16",)  # 7 times 439
    assert program.variants(product(128, columns=65, reduced=3072), cpu_target("sapphirerapids")) == ("16x32",)
    assert program.variants(product(512, columns=1, reduced=2048), cpu_target()) == ()  # zeros, mostly
    assert program.variants(product(2, columns=64, reduced=8), cpu_target()) == ()
    without_weights = large["main"].without_attr("layout_free_buffers")
    assert program.variants(type(large)({"main": without_weights}), cpu_target()) == ()


@pytest.mark.parametrize(("reduced", "variant"), [(768, "16x32"), (3072, "16x32deep")])
def test_the_first_candidates_are_whole_and_keep_all_threads_busy(reduced: int, variant: str) -> None:
    from kintune.compiler.programs.tiled_product import TiledProduct
    from kintune.search.processor import Processor

    program, module = TiledProduct(), product(1, 128, columns=768, reduced=reduced)
    machine = Processor(16, 32, 2, (48 << 10, 2 << 20, 32 << 20))
    first = program.rule(module, variant, machine)
    assert len(first) > 8
    for decisions in first:
        program.write(module, variant, decisions)
    text = program.write(module, variant, first[0]).script()
    assert "T.parallel(T.int64(1))" not in text


def test_rows_that_would_push_each_other_out_of_the_cache_are_not_the_first_choice() -> None:
    from kintune.compiler.programs.tiled_product import TiledProduct
    from kintune.search.processor import Processor

    program, machine = TiledProduct(), Processor(16, 32, 2, (48 << 10, 2 << 20, 32 << 20))
    rows = {}
    for reduced in (1024, 1040):  # rows of data 4096 bytes apart, or a line more
        module = product(1, 128, columns=768, reduced=reduced)
        (((rows[reduced], _), *_), *_) = program.rule(module, "16x32", machine)
    assert rows[1040] == 16  # the last of which are no waste
    assert rows[1024] != 16


@pytest.mark.parametrize(
    ("decisions", "variant"), [(((0,), (0,)), "8x16"), (((99,), (0,), (0,)), "8x16"), (((0,), (0,), (0,)), "x")]
)
def test_decisions_of_another_program_are_refused(decisions: tuple[tuple[int, ...], ...], variant: str) -> None:
    from kintune.compiler.programs.tiled_product import TiledProduct

    with pytest.raises(BuildError):
        TiledProduct().write(product(64, columns=64, reduced=64), variant, decisions)
