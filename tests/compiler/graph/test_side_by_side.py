"""A network that computes each subgraph twice finds the program that is wrong."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.tvm


@pytest.fixture(scope="module")
def target() -> Any:
    import tvm

    from kintune.runtime.target import resolve_target

    return tvm.target.Target(json.loads(resolve_target("native", 1)))


@pytest.fixture(scope="module")
def lowered(target: Any) -> Any:
    """Two products with an epilogue, the first of which occurs twice, and a split into two outputs."""
    import tvm
    from tvm import relax

    from kintune.compiler.graph.lower import lower

    weights = [np.random.default_rng(n).standard_normal((8, 8)).astype(np.float32) for n in range(2)]
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 8), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            value = x
            for weight in weights:
                product = builder.emit(relax.op.matmul(value, relax.const(weight)))
                value = builder.emit(relax.op.nn.relu(product))
            halves = builder.emit(relax.op.split(builder.emit(relax.op.tanh(value)), 2, axis=1))
            one, other = (builder.emit(relax.TupleGetItem(halves, at)) for at in range(2))
            result = builder.emit_output(relax.Tuple([one, builder.emit(relax.op.exp(other))]))
        builder.emit_func_output(result)
    return lower(tvm.IRModule(dict(builder.get().functions_items())), target)


def outputs_of(lowered: Any, target: Any) -> list[Any]:
    import tvm

    from kintune.compiler.graph.assemble import assemble
    from kintune.runtime.tensors import array_of, leaves_of

    program = assemble(lowered, {}, target)
    machine = tvm.relax.VirtualMachine(program.executable, tvm.cpu())
    x = np.random.default_rng(5).standard_normal((4, 8)).astype(np.float32)
    return [np.array(array_of(leaf)) for leaf in leaves_of(machine["main"](tvm.runtime.tensor(x), *program.weights))]


def test_right_programs_agree_and_a_wrong_one_is_named(lowered: Any, target: Any) -> None:
    from kintune.compiler.graph.side_by_side import side_by_side
    from kintune.core.stage_requests import workload_of
    from kintune.validate.numerics import compare_each_program
    from tests.support.mutants import mutant

    digests = {workload.digest for workload in lowered.workloads}
    alone = side_by_side(lowered, digests)
    assert {workload_of(tensor.name) for tensor in alone.outputs} == digests
    outputs = outputs_of(alone.lowered, target)
    assert [output.shape for output in outputs] == [tensor.shape for tensor in alone.outputs]
    assert compare_each_program(alone.outputs, outputs, 1e-3, 1e-3).wrong == {}
    name = next(name for name in lowered.functions if "matmul" in name)
    module = alone.lowered.module
    module.update_func(module.get_global_var(name), mutant(module[name], "a dropped epilogue"))
    found = compare_each_program(alone.outputs, outputs_of(alone.lowered, target), 1e-3, 1e-3)
    assert set(found.wrong) == {lowered.functions[name]}


def test_the_heaviest_are_left_out(lowered: Any) -> None:
    from kintune.compiler.graph.side_by_side import MOST_FLOPS, choose_alone

    heavy = lowered.workloads[0]
    changed = lowered._replace(workloads=(heavy._replace(flops=MOST_FLOPS * 2), *lowered.workloads[1:]))
    everything = {workload.digest for workload in changed.workloads}
    assert choose_alone(changed, everything) == (everything - {heavy.digest}, {heavy.digest})
    assert choose_alone(changed, ()) == (frozenset(), frozenset())
