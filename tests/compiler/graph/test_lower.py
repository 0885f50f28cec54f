from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from tests.support.networks import Small

pytestmark = pytest.mark.tvm

DIGESTS = """
import json, sys
import tvm
from kintune.compiler.graph.lower import lower
from kintune.models.importer import load
from kintune.models.ref import parse_ref
target = tvm.target.Target({"kind": "llvm", "mcpu": "core-avx2", "num-cores": 2})
print(json.dumps([w.digest for w in lower(load(parse_ref(sys.argv[1])).module, target).workloads]))
"""


def _calls(lowered: Any) -> list[str]:
    """The functions that the network calls, in order."""
    bindings = [binding.value for block in lowered.module["main"].body.blocks for binding in block.bindings]
    return [str(value.args[0].name_hint) for value in bindings if getattr(value.op, "name", "") == "relax.call_tir"]


def test_only_the_input_is_transposed(small_conv: Small) -> None:
    """Until the classifier flattens one value a channel."""
    calls = _calls(small_conv.lowered)
    (pooled,) = [i for i, name in enumerate(calls) if "mean" in name]
    assert [i for i, name in enumerate(calls[:pooled]) if "transpose" in name] == [0]


def test_every_convolution_is_one_kernel_with_what_follows_it(small_conv: Small) -> None:
    """Batch norms are folded away, and the bounds of a ReLU6 are no operands."""
    convolutions = [workload for workload in small_conv.lowered.workloads if "conv2d" in workload.signature]
    assert sum(workload.occurrences for workload in convolutions) == 4
    for workload in convolutions:
        assert "batch" not in workload.signature
        shapes = [tuple(map(int, p.shape)) for p in workload.module["main"].params]
        assert () not in shapes
        assert len(shapes) == 4 + ("add-maximum-minimum-add" in workload.signature)


def test_equal_subgraphs_are_one_workload_with_their_count(small_conv: Small) -> None:
    lowered = small_conv.lowered
    assert len({workload.digest for workload in lowered.workloads}) == len(lowered.workloads)
    assert {workload.digest for workload in lowered.workloads} == set(lowered.functions.values())
    called = Counter(lowered.functions[name] for name in _calls(lowered))
    assert {workload.digest: workload.occurrences for workload in lowered.workloads} == called


def test_weights_are_parameters_after_the_inputs(small_conv: Small) -> None:
    main = small_conv.lowered.module["main"]
    assert int(main.attrs["num_input"]) == 1
    assert len(main.params) == 1 + len(small_conv.lowered.weights)
    for parameter, weight in zip(main.params[1:], small_conv.lowered.weights, strict=True):
        assert tuple(map(int, parameter.ty.shape)) == tuple(weight.shape)
    assert "GenericConst" not in {type(value).__name__ for value in _constants(main)}


def test_weights_may_be_laid_out_by_the_kernels(small_conv: Small) -> None:
    convolutions = [w for w in small_conv.lowered.workloads if w.operator == "conv2d"]
    assert convolutions
    assert all(len(workload.module["main"].attrs["layout_free_buffers"]) > 0 for workload in convolutions)


def test_operators_and_families_of_subgraphs(small_conv: Small, small_transformer: Small) -> None:
    of_conv = {workload.operator for workload in small_conv.lowered.workloads if workload.reduces}
    assert {"conv2d", "depthwise", "dense"} <= of_conv
    of_transformer = {workload.operator for workload in small_transformer.lowered.workloads if workload.reduces}
    assert {"dense", "attention"} <= of_transformer


def test_digests_are_equal_in_another_process(small_conv: Small) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TVM_NUM_THREADS": "1", "PYTHONHASHSEED": "7"}
    done = subprocess.run(
        [sys.executable, "-c", DIGESTS, str(small_conv.onnx)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == [workload.digest for workload in small_conv.lowered.workloads]


def test_another_network_with_the_same_layer_has_the_same_workload(small_conv: Small, tmp_path: Any) -> None:
    """Whatever else is in it, whatever it is called, and whatever its weights are."""
    from kintune.compiler.graph.lower import lower
    from kintune.models.importer import load
    from kintune.models.ref import parse_ref
    from kintune.models.zoo.convolution import conv_bn_relu6
    from kintune.models.zoo.network import NetworkBuilder
    from kintune.models.zoo.render import render

    b = NetworkBuilder("another")
    x = conv_bn_relu6(b, "a", b.input("pixels", (1, 16, 8, 8)), 16, 16, 3)
    path = render(b.finish([("y", x, (1, 16, 8, 8))]), tmp_path, seed=9)
    another = lower(load(parse_ref(str(path))).module, small_conv.target)
    (mine,) = [workload for workload in another.workloads if workload.operator == "conv2d"]
    theirs = {workload.digest: workload for workload in small_conv.lowered.workloads}
    assert theirs[mine.digest].flops == mine.flops
    assert theirs[mine.digest].signature == mine.signature


def test_flops_and_bytes_are_those_of_the_operator(small_conv: Small) -> None:
    dense = next(workload for workload in small_conv.lowered.workloads if workload.operator == "dense")
    assert 2 * 16 * 1000 <= dense.flops <= 2 * 16 * 1000 + 2 * 1000
    assert dense.bytes == 4 * (16 + 16 * 1000 + 1000 + 1000)


def test_folding_with_numpy_changes_nothing(small_conv: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    import tvm

    from kintune.compiler.graph import lower as module

    idle = tvm.transform.module_pass(lambda found, _context: found, opt_level=0, name="Idle")
    monkeypatch.setattr(module, "FoldTensors", lambda: idle)
    plain = module.lower(small_conv.model.module, small_conv.target)
    assert [w.digest for w in plain.workloads] == [w.digest for w in small_conv.lowered.workloads]
    for one, other in zip(plain.weights, small_conv.lowered.weights, strict=True):
        assert np.array_equal(one.numpy(), other.numpy())


def test_a_conservative_lowering_converts_no_layout(small_conv: Small) -> None:
    from kintune.compiler.graph.lower import lower

    plain = lower(small_conv.model.module, small_conv.target, conservative=True)
    assert not any("transpose" in name for name in _calls(plain)[:-2])
    shapes = [tuple(map(int, w.module["main"].params[0].shape)) for w in plain.workloads if w.operator == "conv2d"]
    assert (1, 3, 16, 16) in shapes


def _constants(function: Any) -> list[Any]:
    from tvm import relax

    found: list[Any] = []
    relax.analysis.post_order_visit(function, found.append)
    return [expression for expression in found if type(expression).__name__ == "GenericConst"]
