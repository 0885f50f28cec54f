from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import compiled_examples
from tests.support.targets import cpu_target

pytestmark = pytest.mark.tvm


def product(*shape: int, columns: int = 48, reduced: int = 256, epilogue: bool = True) -> Any:
    """A product of `shape` rows with weights, with a bias and a ReLU."""
    import tvm
    from tvm import te, topi

    a = te.placeholder((*shape, reduced), name="a")
    w = te.placeholder((reduced, columns), name="w")
    bias = te.placeholder((columns,), name="bias")
    k = te.reduce_axis((0, reduced), name="k")

    def at(*indices: Any) -> Any:
        return te.sum(a(*indices[:-1], k) * w[k, indices[-1]], axis=k)

    matmul = te.compute((*shape, columns), at, name="matmul", attrs={"layout_free_placeholders": [w]})
    last = topi.nn.relu(topi.add(matmul, bias)) if epilogue else matmul
    function = te.create_prim_func([a, w, bias, last]).with_attr("layout_free_buffers", [1])
    return tvm.IRModule({"main": function.with_attr("global_symbol", "main")})


def outputs(module: Any) -> np.ndarray[Any, Any]:
    """What a module computes of inputs that are always the same."""
    import tvm

    rng = np.random.default_rng(0)
    arguments = [
        tvm.runtime.tensor(rng.random([int(n) for n in p.shape], dtype=np.float32)) for p in module["main"].params
    ]
    tvm.compile(module, cpu_target())["main"](*arguments)
    return arguments[-1].numpy()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [(1, 1), (13, 13), (14, 14), (17, 18), (49, 49), (128, 128), (197, 198), (257, 260), (384, 384), (1500, 1500)],
)
def test_few_rows_are_added_where_no_tile_divides_them(rows: int, wanted: int) -> None:
    from kintune.compiler.programs.padding import padded_rows

    assert padded_rows(rows) == wanted


@pytest.mark.parametrize(
    ("columns", "wanted"),
    [(16, 16), (768, 768), (1000, 1024), (50257, 50272), (17, 17), (33, 33), (250, 256), (47, 48)],
)
def test_few_columns_are_added_where_no_vector_divides_them(columns: int, wanted: int) -> None:
    from kintune.compiler.programs.padding import padded_columns

    assert padded_columns(columns) == wanted


@given(st.integers(1, 3000))
def test_never_more_than_a_twelfth_is_added(rows: int) -> None:
    from kintune.compiler.programs.padding import padded_rows

    assert rows <= padded_rows(rows) <= max(rows + 1, 13 * rows // 12)


@compiled_examples(12, deadline=None)
@given(
    st.sampled_from([(197,), (1, 197), (3, 67), (1, 1, 211), (64,), (2, 17)]),
    st.sampled_from([1, 16, 33, 48, 250]),
    st.sampled_from([64, 129, 256]),
    st.booleans(),
)
def test_a_padded_product_computes_the_same(shape: tuple[int, ...], columns: int, reduced: int, epilogue: bool) -> None:
    from kintune.compiler.programs.padding import PaddedProduct, padded_columns, padded_rows

    module = product(*shape, columns=columns, reduced=reduced, epilogue=epilogue)
    program = PaddedProduct()
    variants = program.variants(module, cpu_target())
    wanted = padded_rows(shape[-1]), padded_columns(columns)
    if np.prod(shape) * columns * reduced >= 1_000_000 and columns > 1:
        assert list(variants) == [f"{wanted[0]}x{wanted[1]}"] * (wanted != (shape[-1], columns))
    for variant in variants:
        np.testing.assert_allclose(outputs(program.write(module, variant, ())), outputs(module), rtol=1e-5)


def test_what_is_no_product_is_left_alone() -> None:
    import tvm
    from tvm import te, topi

    from kintune.compiler.programs.padding import PaddedProduct
    from kintune.errors import BuildError

    a = te.placeholder((1, 197, 64, 64), name="a")
    w = te.placeholder((3, 3, 64, 64), name="w")
    conv = te.create_prim_func([a, w, topi.nn.conv2d_nhwc(a, w, 1, 1, 1)])
    mean = te.create_prim_func([a, topi.sum(a, axis=-1)])
    for function in (conv, mean):
        module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
        assert PaddedProduct().variants(module, cpu_target()) == ()
        with pytest.raises(BuildError):
            PaddedProduct().write(module, "198x64", ())
    for variant in ("196x48", "198", "", "x", "198x47", "ax48"):
        with pytest.raises(BuildError):
            PaddedProduct().write(product(197), variant, ())
