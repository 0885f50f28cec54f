"""Tensors between kernels are kept in bf16 where all kernels around them can take them so, and nowhere else."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st

from kintune.core.keeping import Keeping
from tests.compiler.programs.test_panel_network import chosen
from tests.compiler.programs.test_panel_sum import kinds
from tests.support.examples import compiled_examples

pytestmark = [
    pytest.mark.tvm,
    pytest.mark.skipif({"amx", "dot"}.isdisjoint(kinds()), reason="this CPU has no instructions for bfloat16"),
]

ERROR = 0.02

PHASES = (Phase.explicit, Phase.generate)  # each example is compiled: to shrink one takes too long

Network = Callable[[Any], Any]


class Tried(NamedTuple):
    """What a network computes in fp32, in bf16, and with tensors kept in bf16; and the plans of the last two."""

    wide: list[np.ndarray[Any, Any]]
    without: list[np.ndarray[Any, Any]]
    kept: list[np.ndarray[Any, Any]]
    plans: tuple[Any, Any]
    number: int

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the tensors that are kept."""
        arena = [tensor for tensor in self.plans[1].tensors if tensor.place == "arena"]
        return [tensor.shape for tensor in arena if tensor.dtype == "bfloat16"]

    @property
    def error(self) -> float:
        """The largest error by norm, beside fp32."""
        pairs = zip(self.kept, self.wide, strict=True)
        return max(float(np.linalg.norm(a - b) / np.linalg.norm(b)) for a, b in pairs)


def tried(
    shape: tuple[int, ...],
    network: Network,
    target: Any,
    narrow: Callable[[Any], bool] = lambda workload: True,
    keeping: Keeping = Keeping.ALL,
) -> Tried:
    """Compile a network of one input; workloads of which `narrow` is not true stay in fp32."""
    from tvm import relax

    from kintune.compiler.graph.assemble import assemble_plan
    from kintune.compiler.graph.lower import lower
    from kintune.core.model import Tensor
    from tests.support.plan_interpreter import run_plan

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            found = network(x)
            outputs = [builder.emit_output(each) for each in (found if isinstance(found, list) else [found])]
        builder.emit_func_output(outputs[0] if len(outputs) == 1 else relax.Tuple(outputs))
    lowered = lower(builder.get(), target)
    programs = chosen(lowered, target)
    wanted = {workload.digest for workload in lowered.workloads if narrow(workload)}
    programs = {digest: choice for digest, choice in programs.items() if digest in wanted}
    inputs = (Tensor("x", shape, "float32"),)
    given_back = tuple(
        Tensor(f"y{number}", tuple(int(extent) for extent in each.ty.shape), "float32")
        for number, each in enumerate(outputs)
    )
    results, plans, number = [], [], 0
    array = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    for choice, keeps in (({}, Keeping.NONE), (programs, Keeping.NONE), (programs, keeping)):
        made = assemble_plan(lowered, choice, target, inputs=inputs, outputs=given_back, keeping=keeps)
        results.append(run_plan(made, array))
        plans.append(made.plan)
        number = made.kept
    return Tried(results[0], results[1], results[2], (plans[1], plans[2]), number)


def weights(*shape: int, seed: int = 0) -> Any:
    from tvm import relax

    scale = float(np.prod(shape[1:] if len(shape) == 4 else shape[:1])) ** -0.5
    array = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return relax.const(array * np.float32(scale), "float32")


def dense(x: Any, reduced: int, columns: int, seed: int = 0) -> Any:
    from tvm import relax

    found = relax.op.add(relax.op.matmul(x, weights(reduced, columns, seed=seed)), weights(columns, seed=seed + 1))
    return relax.op.nn.relu(found)


def convolution(x: Any, channels: int, filters: int, kernel: int = 3, seed: int = 0, **options: Any) -> Any:
    from tvm import relax

    found = relax.op.nn.conv2d(x, weights(filters, channels, kernel, kernel, seed=seed), **options)
    return relax.op.nn.relu(relax.op.add(found, weights(1, filters, 1, 1, seed=seed + 1)))


def test_products_that_follow_each_other_compute_the_same_to_the_bit(here: Any) -> None:
    found = tried((64, 96), lambda x: dense(dense(dense(x, 96, 128), 128, 160, 2), 160, 64, 4), here)
    assert found.number == 2
    assert sorted(found.shapes) == [(64, 128), (64, 160)]
    assert np.array_equal(found.kept[0], found.without[0])
    assert 0 < found.error < ERROR
    without, kept = found.plans
    assert kept.arena_bytes == without.arena_bytes // 2 == 64 * (128 + 160) * 2
    assert [kept.tensors[number].dtype for number in kept.output_tensors] == ["float32"]


def test_rows_that_fill_no_block(here: Any) -> None:
    found = tried((197, 96), lambda x: dense(dense(x, 96, 128), 128, 72, 2), here)
    assert found.number == 1
    assert np.array_equal(found.kept[0], found.without[0])


def test_the_shortcut_of_a_residual_block_is_rounded(here: Any) -> None:
    from tvm import relax

    def network(x: Any) -> Any:
        first = convolution(x, 32, 64, padding=1)
        y = convolution(first, 64, 64, 1, 2)
        y = relax.op.nn.conv2d(y, weights(64, 64, 3, 3, seed=4), padding=1)
        return convolution(relax.op.nn.relu(relax.op.add(y, first)), 64, 32, 1, 6)

    found = tried((1, 32, 14, 14), network, here)
    assert found.number == 4  # the input in another layout as well; what becomes the output is not
    assert not np.array_equal(found.kept[0], found.without[0])
    assert 0 < found.error < ERROR


def test_what_is_rounded_anyway_changes_nothing(here: Any) -> None:
    from tvm import relax

    def network(x: Any) -> Any:
        first = dense(x, 96, 128)
        second = dense(dense(first, 128, 160, 2), 160, 128, 4)
        return dense(relax.op.add(relax.op.matmul(second, weights(128, 128, seed=6)), first), 128, 32, 8)

    found = tried((64, 96), network, here, keeping=Keeping.EXACT)
    assert sorted(found.shapes) == [(64, 128), (64, 128), (64, 160)][: found.number]
    assert found.number == len(found.shapes) >= 2
    assert np.array_equal(found.kept[0], found.without[0])


def test_what_the_network_returns_stays_in_fp32(here: Any) -> None:
    def network(x: Any) -> Any:
        first = dense(x, 96, 128)
        return [first, dense(first, 128, 64, 2)]

    found = tried((64, 96), network, here)
    assert found.number == 0
    assert not found.shapes
    assert all(map(np.array_equal, found.kept, found.without))


def test_a_product_in_fp32_reads_fp32(here: Any) -> None:
    def is_narrow(workload: Any) -> bool:
        return workload.flops < 2 * 64 * 128 * 300

    found = tried((64, 96), lambda x: dense(dense(x, 96, 128), 128, 300, 2), here, is_narrow)
    assert found.number == 0
    assert np.array_equal(found.kept[0], found.without[0])


def test_nothing_is_kept_where_nothing_is_narrow(here: Any) -> None:
    found = tried((64, 96), lambda x: dense(dense(x, 96, 128), 128, 64, 2), here, lambda workload: False)
    assert found.number == 0
    assert np.array_equal(found.kept[0], found.wide[0])


def test_kernels_that_read_once_take_it_as_well(here: Any) -> None:
    """Also those that only copy."""
    from tvm import relax

    def network(x: Any) -> Any:
        y = relax.op.nn.max_pool2d(convolution(x, 32, 64, padding=1), (3, 3), (2, 2), (1, 1, 1, 1))
        y = convolution(y, 64, 64, 3, 2, padding=1)
        pooled = relax.op.mean(y, [2, 3])
        return relax.op.matmul(relax.op.reshape(pooled, (1, 64)), weights(64, 1000, seed=5))

    found = tried((1, 32, 16, 16), network, here)
    assert found.number >= 3
    assert 0 < found.error < ERROR


@compiled_examples(6, deadline=None, phases=PHASES)
@given(
    st.lists(st.sampled_from(["one", "three", "strided", "residual", "pool"]), min_size=1, max_size=4),
    st.sampled_from([16, 32, 40]),
    st.sampled_from([7, 14, 17]),
)
def test_networks_of_convolutions_are_near_to_fp32(here: Any, layers: list[str], channels: int, size: int) -> None:
    from tvm import relax

    def network(x: Any) -> Any:
        x = convolution(x, channels, channels, 3, 90, padding=1)
        for seed, layer in enumerate(layers):
            if layer == "pool":
                x = relax.op.nn.max_pool2d(x, (3, 3), (1, 1), (1, 1, 1, 1))
            elif layer == "residual":
                x = relax.op.add(convolution(x, channels, channels, 3, 2 * seed, padding=1), x)
            elif layer == "three":
                x = convolution(x, channels, channels, 3, 2 * seed, padding=1)
            else:
                x = convolution(x, channels, channels, 1, 2 * seed, strides=2 if layer == "strided" and seed < 2 else 1)
        return convolution(x, channels, 24, 1, 99)

    found = tried((1, channels, size, size), network, here)
    assert found.number >= 1
    assert found.error < ERROR


C_PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
#include "kintune.hpp"
int main() {
  kintune::Network network("model.kt", 1);
  std::vector<float> x(128 * 128), y(128 * 128);
  if (fread(x.data(), sizeof(float), x.size(), stdin) != x.size()) return 3;
  network.run({kintune::buffer(x)}, {kintune::buffer(y)});
  fwrite(y.data(), sizeof(float), y.size(), stdout);
}
"""


def test_exports_keep_the_same_tensors_and_compute_the_same(tmp_path: Path, here: Any) -> None:
    """A plan with tensors in bf16 is run by the libraries for C and for onnxruntime as it is by ours."""
    import onnxruntime
    from tvm import relax

    from kintune.compiler.graph.executable import build_executable, describe_build
    from kintune.compiler.graph.lower import lower
    from kintune.core.model import Tensor
    from kintune.runtime.exports.c_library import export_c
    from kintune.runtime.exports.onnx_operator import LIBRARY_NAME, export_onnx
    from kintune.runtime.manifest import Narrow, read_manifest
    from kintune.runtime.opening import open
    from kintune.runtime.target import resolve_target

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((128, 128), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(dense(dense(dense(x, 128, 128), 128, 128, seed=2), 128, 128, seed=4))
        builder.emit_func_output(y)
    lowered = lower(builder.get(), here)
    programs = chosen(lowered, here)
    manifest = describe_build(
        model_name="kept",
        model_digest="0" * 64,
        target=resolve_target("native", 1),
        threads=1,
        inputs=[Tensor("x", (128, 128), "float32")],
        outputs=[Tensor("y", (128, 128), "float32")],
        chosen={},
        sketches=[sketch for sketch, _ in programs.values()],
        narrow=Narrow({}, 0.1),
    )
    build_executable(lowered, programs, here, manifest, keeping=Keeping.ALL).save(tmp_path / "kept.kt")
    narrow = read_manifest(tmp_path / "kept.kt").narrow
    assert narrow is not None
    assert narrow.kept_tensors == 2
    array = np.random.default_rng(1).standard_normal((128, 128)).astype(np.float32)
    with open(tmp_path / "kept.kt") as executable:
        wanted = executable.run({"x": array})["y"]

    exported = export_onnx(tmp_path / "kept.kt", tmp_path / "onnx")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.register_custom_ops_library(str(exported.with_name(LIBRARY_NAME)))
    session = onnxruntime.InferenceSession(str(exported), options, providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(session.run(None, {"x": array})[0], wanted)

    folder = export_c(tmp_path / "kept.kt", tmp_path / "c")
    (folder / "program.cpp").write_text(C_PROGRAM)
    command = ["c++", "-std=c++17", "program.cpp", "-L.", "-lkintune", "-Wl,-rpath,$ORIGIN", "-o", "program"]
    subprocess.run(command, cwd=folder, check=True)
    found = subprocess.run([folder / "program"], cwd=folder, input=array.tobytes(), check=True, stdout=subprocess.PIPE)
    np.testing.assert_array_equal(np.frombuffer(found.stdout, np.float32).reshape(128, 128), wanted)


@pytest.mark.parametrize("keeping", [Keeping.ALL, Keeping.EXACT])
def test_parts_of_another_type_than_the_whole_are_joined_by_a_kernel(here: Any, keeping: Keeping) -> None:
    """A block of YOLOv8: what is split is joined with what is computed of it, whole in bf16 and partly in fp32."""
    from tvm import relax

    def network(x: Any) -> Any:
        pieces = relax.op.split(convolution(x, 32, 64, 1), 2, axis=1)
        first, second = relax.TupleGetItem(pieces, 0), relax.TupleGetItem(pieces, 1)
        y = convolution(convolution(second, 32, 32, 3, 2, padding=1), 32, 32, 3, 4, padding=1)
        return convolution(relax.op.concat([first, second, y], 1), 96, 32, 1, 6)

    assert tried((1, 32, 32, 32), network, here, keeping=keeping).error < ERROR
