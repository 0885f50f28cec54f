"""The program for products with blockwise quantised weights computes what the untuned program does."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st

from kintune.errors import BuildError
from kintune.search.processor import Processor
from tests.support.blockwise import Product, write_product
from tests.support.examples import compiled_examples
from tests.support.large import COLUMNS, DEPTH, large_product, sums_of_rows

pytestmark = pytest.mark.tvm

WIDE, NARROW = "cascadelake", "haswell"
MACHINE = Processor(lanes=16, registers=32, threads=2, caches=(32 << 10, 1 << 20, 16 << 20))


def target_of(cpu: str = "native") -> Any:
    import tvm

    from kintune.runtime.target import resolve_target

    return tvm.target.Target(json.loads(resolve_target(cpu if cpu == "native" else f"llvm -mcpu={cpu}", 1)))


def workload_of(product: Product) -> Any:
    """The kernel of the product."""
    from kintune.compiler.graph.lower import lower
    from kintune.models.importer import load
    from kintune.models.ref import parse_ref

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "product.onnx"
        write_product(product, path)
        network = lower(load(parse_ref(str(path))).module, target_of(NARROW))
    (kernel,) = [each.module for each in network.workloads if "kintune.blockwise" in str(each.module.script())]
    return kernel


def run(module: Any, target: Any) -> np.ndarray[Any, Any]:
    """What a module computes of drawn operands, the weights among them in their own layout."""
    import tvm

    random = np.random.default_rng(3)
    arrays = []
    for parameter in module["main"].params:
        shape, dtype = tuple(int(extent) for extent in parameter.shape), np.dtype(str(parameter.dtype))
        drawn = random.integers(0, 256, shape) if dtype.kind == "u" else random.standard_normal(shape)
        arrays.append(tvm.runtime.tensor(drawn.astype(dtype)))
    tvm.compile(module, target)["main"](*arrays)
    return np.asarray(arrays[-1].numpy())


def agree(product: Product, draw: Any, cpu: str) -> None:
    from kintune.compiler.programs.blockwise_product import BlockwiseProduct
    from kintune.compiler.space.generator import default_schedule

    module, target = workload_of(product), target_of(cpu)
    program = BlockwiseProduct()
    (variant,) = program.variants(module, target)
    decisions = tuple(axis.values[draw(len(axis.values))] for axis in program.axes(module, variant) or ())
    written = program.write(module, variant, decisions)
    assert 'call_extern("int32", "kt_' in str(written.script())
    if cpu != NARROW and "permute16" not in BlockwiseProduct().variants(module, target_of()):
        return
    expected = run(default_schedule(module, target_of()), target_of())
    tolerance = 1e-5 * float(np.abs(expected).max())
    np.testing.assert_allclose(run(written, target), expected, rtol=1e-4, atol=tolerance, err_msg=str(decisions))


_PRODUCTS = st.builds(
    Product,
    bits=st.sampled_from((2, 4, 8)),
    block=st.sampled_from((16, 32, 64, 128)),
    inputs=st.integers(1, 200),
    columns=st.integers(1, 150),
    lead=st.sampled_from(((1,), (1, 1), (3,), (2, 9), (17,), (40,))),
    zeros=st.sampled_from(("", "packed", "real")),
    bias=st.booleans(),
    after=st.sampled_from(("", "relu", "residual")),
    seed=st.integers(0, 99),
)


@pytest.mark.parametrize("cpu", [WIDE, NARROW])
@compiled_examples(12, deadline=None, phases=[Phase.generate])
@given(_PRODUCTS, st.data())
def test_any_product_and_decisions(cpu: str, product: Product, data: st.DataObject) -> None:
    agree(product, lambda count: data.draw(st.integers(0, count - 1)), cpu)


@pytest.mark.parametrize(
    "product",
    [
        Product(inputs=256, columns=200, after="relu", bias=True),
        Product(bits=8, inputs=256, columns=128, lead=(64,), zeros="packed"),
        Product(inputs=100, columns=64, block=16, lead=(3,), zeros="packed"),
        Product(2, 16, 100, 64, (3,), "packed"),
    ],
)
def test_the_first_candidates(product: Product) -> None:
    from kintune.compiler.programs.blockwise_product import BlockwiseProduct

    assert BlockwiseProduct().rule(workload_of(product), "permute16", MACHINE)
    agree(product, lambda count: 0, WIDE)
    agree(product, lambda count: count - 1, WIDE)


@pytest.mark.parametrize("unpacks", [False, True])
def test_data_may_be_larger_than_two_gibibytes(unpacks: bool) -> None:
    from tvm import relax

    from kintune.compiler.programs.blockwise_product import BlockwiseProduct
    from kintune.models.blockwise import Blockwise
    from kintune.models.blockwise_kernel import call_blockwise

    integers = np.ones((DEPTH, COLUMNS), np.uint8)
    scales = np.ones((DEPTH // 32, COLUMNS), np.float32)
    product = Blockwise(8, 32, DEPTH)
    module = large_product(
        "float32",
        lambda builder, data: call_blockwise(builder, product, [data, relax.const(integers), relax.const(scales)]),
    )
    program, target = BlockwiseProduct(), target_of()
    (variant,) = program.variants(module, target)
    (axis,) = program.axes(module, variant) or ()
    decision = next(
        one
        for one in ((value,) for value in axis.values)
        if ("floats" in str(program.write(module, variant, one).script())) == unpacks
    )
    found = sums_of_rows(program.write(module, variant, decision))
    np.testing.assert_allclose(found, [[-127 * DEPTH * times] * COLUMNS for times in (1, 0, 0, 3)], rtol=1e-5)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", ["", "packed", "real"])
def test_packing_only_moves_weights(bits: int, zeros: str) -> None:
    """Measurements fill them with one value, in whatever form they are."""
    from kintune.compiler.programs.blockwise_product import BlockwiseProduct
    from kintune.compiler.space.packing import computes_packing

    module = workload_of(Product(bits=bits, zeros=zeros, columns=50))
    assert not computes_packing(BlockwiseProduct().write(module, "permute16", ((1, 4, 0, 1, 1),)))


def test_decisions_that_are_not_its_own_are_refused() -> None:
    from kintune.compiler.programs.blockwise_product import BlockwiseProduct

    program, module = BlockwiseProduct(), workload_of(Product(columns=256, lead=(4,)))
    with pytest.raises(BuildError, match="1 decisions, not 2"):
        program.write(module, "permute16", ((0,), (0,)))
    with pytest.raises(BuildError, match=r"no rows vectors unpacks blocks parts = 999"):
        program.write(module, "permute16", ((999,),))
    with pytest.raises(BuildError, match="no variant permute7"):
        program.axes(module, "permute7")


def test_it_is_offered_for_such_products_alone() -> None:
    import tvm

    from kintune.compiler.programs.blockwise_product import BlockwiseProduct
    from kintune.compiler.space.sketches import generate_sketches
    from tests.support.convolutions import Case, workload

    program, module = BlockwiseProduct(), workload_of(Product(inputs=512, columns=512))
    assert program.variants(module, target_of(WIDE)) == ("permute16",)
    assert program.variants(module, target_of(NARROW)) == ("convert8",)
    assert program.variants(module, tvm.target.Target("nvidia/nvidia-a100")) == ()
    assert program.variants(workload(Case()), target_of(WIDE)) == ()
    with pytest.raises(BuildError, match="blockwise quantised"):
        program.axes(workload(Case()), "permute16")
    (sketch,) = generate_sketches("w", module, target_of(WIDE))
    assert json.loads(sketch.trace)["program"] == "blockwise.3:permute16"
