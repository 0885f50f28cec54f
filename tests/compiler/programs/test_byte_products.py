"""The program for products of bytes computes exactly what the untuned program does."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st

from kintune.errors import BuildError
from kintune.search.processor import Processor
from tests.support.examples import compiled_examples
from tests.support.large import COLUMNS, DEPTH, large_product, sums_of_rows
from tests.support.quantised import Layer, Matrices, lowered, write_layer, write_matrices
from tests.support.targets import native_target

pytestmark = pytest.mark.tvm

CPU = "cascadelake"
ON_ARM = {
    f"{cpu} -mtriple=aarch64-linux-gnu": variant for cpu, variant in (("neoverse-n2", "usdot"), ("cortex-a76", "sdot"))
}
VARIANTS = {CPU: "vnni", "alderlake": "vnni256", **ON_ARM}
MACHINE = Processor(lanes=16, registers=32, threads=2, caches=(32 << 10, 1 << 20, 16 << 20))


def workload_of(layer: Layer | Matrices, cpu: str = CPU) -> tuple[Any, Any]:
    """The kernel that multiplies bytes, and its target."""
    write: Any = write_layer if isinstance(layer, Layer) else write_matrices
    with tempfile.TemporaryDirectory() as folder:
        network, target = lowered(write(layer, Path(folder)), cpu)
    multiplied = [each for each in network.workloads if "kintune.bytes" in str(each.module.script())]
    (kernel,) = [each.module for each in multiplied if not each.name.startswith("sum")]
    return kernel, target


def multiplies_bytes(cpu: str = CPU) -> bool:
    """Whether this machine runs what is written for the CPU."""
    from tvm.target import codegen

    if cpu == CPU:
        return bool(codegen.target_has_features("avx512vnni", native_target()))
    avx = ("avxvnni", "avx512vnni")
    return cpu == "alderlake" and any(codegen.target_has_features(each, native_target()) for each in avx)


def run(module: Any) -> np.ndarray[Any, Any]:
    """What a module computes of drawn operands, the weights among them in their own layout."""
    import tvm

    random = np.random.default_rng(3)
    arrays = []
    for parameter in module["main"].params:
        shape, dtype = tuple(int(extent) for extent in parameter.shape), np.dtype(str(parameter.dtype))
        if dtype.kind == "f":
            drawn = (random.standard_normal(shape) * 0.01).astype(dtype)
        elif dtype.itemsize == 1:
            drawn = random.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, shape).astype(dtype)
        else:
            drawn = random.integers(-999, 1000, shape).astype(dtype)
        arrays.append(tvm.runtime.tensor(drawn))
    tvm.compile(module, native_target())["main"](*arrays)
    return np.asarray(arrays[-1].numpy())


def agree(layer: Layer | Matrices, draw: Any, cpu: str = CPU) -> None:
    from kintune.compiler.programs.byte_products import ByteProducts
    from kintune.compiler.space.generator import default_schedule

    module, target = workload_of(layer, cpu)
    program = ByteProducts()
    (variant,) = program.variants(module, target)
    decisions = tuple(axis.values[draw(len(axis.values))] for axis in program.axes(module, variant) or ())
    try:
        written = program.write(module, variant, decisions)
    except BuildError:
        decisions = program.rule(module, variant, MACHINE)[draw(3) % 3]
        written = program.write(module, variant, decisions)
    assert variant == VARIANTS[cpu]
    if not multiplies_bytes(cpu):
        assert 'call_extern("int32", "kt_' in str(written.script())
        return
    np.testing.assert_array_equal(run(written), run(default_schedule(module, native_target())), err_msg=str(decisions))


def layers() -> st.SearchStrategy[Layer]:
    def whole(layer: Layer) -> Layer:
        return msgspec.structs.replace(layer, points=(layer.points[0], layer.points[1]))

    return st.builds(
        Layer,
        form=st.sampled_from(("qdq", "integer", "dynamic")),
        channels=st.integers(1, 40),
        filters=st.integers(1, 70),
        height=st.integers(3, 12),
        width=st.integers(3, 12),
        kernel=st.sampled_from((None, (1, 1), (3, 3), (1, 3), (2, 2))),
        strides=st.sampled_from(((1, 1), (2, 2), (1, 2))),
        dilations=st.sampled_from(((1, 1), (1, 1), (2, 1), (1, 2))),
        pads=st.sampled_from(((1, 1, 1, 1), (2, 2, 2, 2), (4, 4, 4, 4), (2, 3, 4, 5), (0, 0, 0, 0))),
        points=st.tuples(st.integers(0, 255), st.integers(0, 255)),
        signed_weights=st.booleans(),
        after=st.sampled_from(("", "relu", "hard", "residual")),
        seed=st.integers(0, 99),
    ).map(whole)


def has_a_place(layer: Layer) -> bool:
    if layer.kernel is None:
        return True
    reach = [(taps - 1) * apart + 1 for taps, apart in zip(layer.kernel, layer.dilations, strict=True)]
    return layer.height + layer.pads[0] + layer.pads[2] >= reach[0] and layer.width + sum(layer.pads[1::2]) >= reach[1]


@compiled_examples(15, deadline=None, phases=[Phase.generate])
@given(layers().filter(has_a_place), st.sampled_from((CPU, CPU, "alderlake")), st.data())
def test_any_layer_and_decisions(layer: Layer, cpu: str, data: st.DataObject) -> None:
    agree(layer, lambda count: data.draw(st.integers(0, count - 1)), cpu)


@st.composite
def matrices(draw: Any) -> Matrices:
    """Products of computed matrices, of which the second ones may be as many as the first ones."""
    rows, depth, columns = (draw(st.integers(1, 40)) for _ in range(3))
    batches = draw(st.sampled_from(((), (3,), (2, 2))))
    right = draw(st.sampled_from((batches, ())))
    points = draw(st.tuples(st.integers(0, 255), st.integers(0, 255)))
    return Matrices((*batches, rows, depth), (*right, depth, columns), points=points)


@compiled_examples(10, deadline=None, phases=[Phase.generate])
@given(matrices(), st.sampled_from((CPU, "alderlake")), st.data())
def test_computed_matrices_and_any_decisions(product: Matrices, cpu: str, data: st.DataObject) -> None:
    agree(product, lambda count: data.draw(st.integers(0, count - 1)), cpu)


@pytest.mark.parametrize("cpu", VARIANTS)
@pytest.mark.parametrize(
    "layer",
    [
        Layer(channels=64, filters=64, points=(0, 0), after="relu"),
        Layer(channels=3, filters=32, kernel=(7, 7), strides=(2, 2), pads=(3, 3, 3, 3), height=20, width=22),
        Layer(channels=32, filters=100, kernel=None, height=3, width=5),
        Layer(channels=64, filters=64, height=100, kernel=(3,)),
        Layer("dynamic", channels=64, filters=64, signed_weights=False, weight_point=178),
        Matrices((4, 60, 64), (4, 64, 96), points=(128, 9)),
    ],
)
def test_the_first_candidates(layer: Layer, cpu: str) -> None:
    from kintune.compiler.programs.byte_products import ByteProducts

    module, _ = workload_of(layer, cpu)
    assert len(ByteProducts().rule(module, VARIANTS[cpu], MACHINE)) >= 8
    agree(layer, lambda count: 0, cpu)
    agree(layer, lambda count: count - 1, cpu)


@pytest.mark.parametrize(
    ("cpu", "instruction"),
    [
        (CPU, r"vpdpbusd.*zmm"),
        ("alderlake", r"vpdpbusd.*ymm"),
        *((cpu, rf"\t{name}\t") for cpu, name in ON_ARM.items()),
    ],
)
def test_the_instruction_is_that_of_the_processor(cpu: str, instruction: str) -> None:
    import tvm

    from kintune.compiler.programs.byte_products import ByteProducts

    module, target = workload_of(Layer(channels=64, filters=64), cpu)
    written = ByteProducts().write(module, VARIANTS[cpu], ByteProducts().rule(module, VARIANTS[cpu], MACHINE)[0])
    text = tvm.compile(written, target).mod.inspect_source("asm")
    assert re.search(instruction, text)


def test_decisions_that_make_no_program_are_refused() -> None:
    from kintune.compiler.programs.byte_products import ByteProducts

    module, _ = workload_of(Layer(filters=64))
    program = ByteProducts()
    axes = program.axes(module, "vnni") or ()
    with pytest.raises(BuildError, match="do not fit"):
        program.write(module, "vnni", tuple(axis.values[-1] for axis in axes))
    with pytest.raises(BuildError, match="6 decisions, not 1"):
        program.write(module, "vnni", ((0,),))


def large_bytes() -> Any:
    """The kernel of a product of more than 2 GiB of bytes."""
    from tvm import relax

    weights = np.ones((DEPTH, COLUMNS), np.int32)

    def emit(builder: Any, data: Any) -> Any:
        return relax.op.matmul(builder.emit(relax.op.astype(data, "int32")), relax.const(weights))

    return large_product("uint8", emit)


@pytest.mark.skipif("not multiplies_bytes()", reason="this CPU multiplies no bytes")
def test_data_may_be_larger_than_two_gibibytes() -> None:
    from kintune.compiler.programs.byte_products import ByteProducts

    module = large_bytes()
    written = ByteProducts().write(module, "vnni", ByteProducts().rule(module, "vnni", MACHINE)[0])
    assert sums_of_rows(written).tolist() == [[DEPTH * times] * COLUMNS for times in (1, 0, 0, 3)]


def test_it_is_offered_for_products_of_bytes_alone() -> None:
    import tvm

    from kintune.compiler.programs.byte_products import ByteProducts
    from tests.support.convolutions import Case, workload

    target = tvm.target.Target({"kind": "llvm", "mcpu": CPU, "num-cores": 2})
    assert not ByteProducts().variants(workload(Case()), target)
    module, _ = workload_of(Layer())
    assert ByteProducts().variants(module, target) == ("vnni",)
    for variant in ("vnni128", "amx"):  # tiles have a program of their own
        with pytest.raises(BuildError, match=f"variant {variant}"):
            ByteProducts().axes(module, variant)
    assert not ByteProducts().variants(module, tvm.target.Target({"kind": "llvm", "mcpu": "core-avx2", "num-cores": 2}))


def test_equal_weights_stay_equal_when_packed() -> None:
    """Measurements fill them with one value, in whatever form they are."""
    from kintune.compiler.programs.byte_products import ByteProducts

    module, _ = workload_of(Layer(channels=5, filters=19))
    written = ByteProducts().write(module, "vnni", ByteProducts().rule(module, "vnni", MACHINE)[0])
    text = str(written.script())
    packing = text[text.index("packed_bytes") : text.index("bordered_bytes")]
    assert "T.if_then_else" not in packing
    assert "T.Select" not in packing
