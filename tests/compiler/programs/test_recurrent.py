"""Programs of recurrent layers, each compiled and compared with the plain kernel."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from kintune.core.candidate import Candidate, NamedChoice
from kintune.models.recurrence import BIDIRECTIONAL, FORWARD, GRU, LSTM, REVERSE, RNN, Recurrence

pytestmark = pytest.mark.tvm

_STEPS = 5


def workload(recurrence: Recurrence) -> Any:
    """The workload whose recurrent weights are constants."""
    import tvm

    from kintune.models.recurrent_kernel import recurrent_kernel

    kernel = recurrent_kernel(recurrence).without_attr("op_pattern").with_attr("global_symbol", "main")
    return tvm.IRModule({"main": kernel.with_attr("layout_free_buffers", [1])})


def inputs(recurrence: Recurrence) -> list[Any]:
    draw = np.random.default_rng(0)
    found = []
    for name, shape in recurrence.operands:
        values = draw.standard_normal(shape).astype(np.float32) / 4
        if recurrence.dtype(name) == "int8":
            values = draw.integers(-128, 128, shape, np.int8)
        if name == "recurrent":
            values[..., recurrence.hidden :] = 0
        if name == "scales":
            values = np.abs(values) / 100
        if name == "zeros":
            values = draw.integers(-50, 50, shape, np.int32)
        if name == "offsets":
            values = found[1].sum(1, dtype=np.int32)
        if name == "lengths":
            values = (np.arange(shape[0]) * 3 % (_STEPS + 1)).astype(np.int32)
        found.append(values)
    return found


def run(module: Any, recurrence: Recurrence, values: list[Any]) -> list[Any]:
    """What a module with the weights as they are computes."""
    import tvm

    from kintune.compiler.graph.own_rules import own_rules
    from kintune.runtime.target import resolve_target

    target = tvm.target.Target(json.loads(resolve_target("native", 2)))
    with own_rules(target):
        built = tvm.compile(module, target)
    results = [np.full(shape, np.nan, np.float32) for _, shape in recurrence.results]
    tensors = [tvm.runtime.tensor(array) for array in (*values, *results)]
    built["main"](*tensors)
    return [tensor.numpy() for tensor in tensors[len(values) :]]


def check(recurrence: Recurrence, written: Iterable[Any]) -> None:
    """Each of the modules computes what the plain kernel does."""
    values = inputs(recurrence)
    wanted = run(workload(recurrence), recurrence, values)
    for module in written:
        for ours, theirs in zip(run(module, recurrence, values), wanted, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


MIXED = ("softsign", "leakyrelu:0.1", "softplus")
KINDS = [
    Recurrence(LSTM, FORWARD, _STEPS, 1, 32),
    Recurrence(LSTM, BIDIRECTIONAL, _STEPS, 2, 20, lengths=True),
    Recurrence(LSTM, REVERSE, _STEPS, 3, 5),
    Recurrence(LSTM, BIDIRECTIONAL, _STEPS, 2, 20, lengths=True, peepholes=True),
    Recurrence(GRU, BIDIRECTIONAL, _STEPS, 2, 24),
    Recurrence(GRU, REVERSE, _STEPS, 3, 20, lengths=True),
    Recurrence(GRU, FORWARD, _STEPS, 2, 40, reset_after=True),
    Recurrence(GRU, BIDIRECTIONAL, _STEPS, 1, 5, reset_after=True, lengths=True),
    Recurrence(RNN, BIDIRECTIONAL, _STEPS, 2, 17),
    Recurrence(RNN, REVERSE, _STEPS, 2, 32, activations=("relu",), lengths=True),
    Recurrence(LSTM, FORWARD, _STEPS, 1, 32, quantised=True),
    Recurrence(LSTM, BIDIRECTIONAL, _STEPS, 2, 20, quantised=True, lengths=True, peepholes=True),
    Recurrence(LSTM, BIDIRECTIONAL, _STEPS, 1, 17, coupled=True, clip=0.75, activations=(*MIXED, *MIXED[::-1])),
    Recurrence(GRU, REVERSE, _STEPS, 2, 16, clip=0.5, activations=("hardsigmoid:0.3:0.4", "scaledtanh:1.5:0.7")),
]


@pytest.mark.parametrize("recurrence", KINDS, ids=lambda r: r.text)
def test_every_variant_computes_the_same(recurrence: Recurrence, cpu: Any, here: Any) -> None:
    from kintune.compiler.kernels.instructions import BYTES, best
    from kintune.compiler.programs.recurrent import RecurrentProgram
    from kintune.search.processor import Processor

    module, program = workload(recurrence), RecurrentProgram()
    variants = program.variants(module, cpu)
    assert {"steps", "single"} <= set(variants)
    if recurrence.quantised:  # `cpu` has no instruction that multiplies bytes; this one may have
        instruction = best(BYTES, here)
        variants = ("single", *(f"{way}-{instruction.variant}" for way in variants if instruction is not None))
    machine = Processor(16, 32, 2)
    check(recurrence, (program.write(module, v, program.rule(module, v, machine)[0]) for v in variants))


@pytest.mark.slow
@pytest.mark.parametrize("recurrence", KINDS, ids=lambda r: r.text)
def test_every_decision_computes_the_same(recurrence: Recurrence) -> None:
    from kintune.compiler.programs.recurrent import RecurrentProgram

    program, module = RecurrentProgram(), workload(recurrence)
    axes = program.axes(module, "single")
    assert axes is not None
    decided = itertools.product(*(axis.values for axis in axes if isinstance(axis, NamedChoice)))
    check(recurrence, (program.write(module, "single", each) for each in decided))


@pytest.mark.parametrize(
    ("recurrence", "variants"),
    [
        (Recurrence(LSTM, FORWARD, 9, 1, 256), ("steps", "single")),
        (Recurrence(LSTM, FORWARD, 9, 1, 64), ("single", "steps")),
        (Recurrence(LSTM, FORWARD, 9, 4, 256), ("steps", "rows", "single")),
        (Recurrence(LSTM, FORWARD, 9, 4, 64), ("rows", "single", "steps")),
        (Recurrence(GRU, BIDIRECTIONAL, 9, 1, 64), ("rows", "steps", "single")),
    ],
)
def test_what_threads_share(cpu: Any, recurrence: Recurrence, variants: tuple[str, ...]) -> None:
    import tvm

    from kintune.compiler.programs.recurrent import RecurrentProgram

    module = workload(recurrence)
    assert RecurrentProgram().variants(module, cpu) == variants
    alone = tvm.target.Target({"kind": "llvm", "mcpu": "core-avx2", "num-cores": 1})
    assert RecurrentProgram().variants(module, alone) == ("single",)


def test_weights_that_are_no_constants_have_no_panels(cpu: Any) -> None:
    from kintune.compiler.programs.recurrent import RecurrentProgram

    module = workload(KINDS[0])
    module["main"] = module["main"].with_attr("layout_free_buffers", [])
    assert RecurrentProgram().variants(module, cpu) == ()


def test_a_candidate_is_built_with_its_weights_in_panels(cpu: Any) -> None:
    from kintune.compiler.build import build_candidate
    from kintune.compiler.space.replay import save_workload
    from kintune.compiler.space.sketches import generate_sketches

    recurrence = KINDS[0]
    module = workload(recurrence)
    sketches = generate_sketches("w", module, cpu)
    assert len(sketches) == 2
    candidate = Candidate("w", sketches[1].digest, ((8,), (1,), (1,)))
    built = build_candidate(cpu, save_workload(module), sketches[1], candidate)
    assert built.operands[1].shape == (1, 4, 32 * 32)
    roles = [operand.role for operand in built.operands]
    assert roles == ["activation", "weight", *["activation"] * 2, *["output"] * 3]


@pytest.mark.parametrize(("cell", "gates"), [(LSTM, 4), (GRU, 3)])
def test_a_whole_network_is_the_same_with_and_without_the_program(cpu: Any, cell: str, gates: int) -> None:
    """Also where a step goes through the units twice, with weights of its own."""
    import tvm
    from tvm import relax

    from kintune.compiler.graph.assemble import assemble
    from kintune.compiler.graph.lower import lower
    from kintune.compiler.space.sketches import generate_sketches
    from kintune.models.recurrent_layer import LayerWeights, recurrent_layer
    from kintune.runtime.target import resolve_target

    recurrence = Recurrence(cell, BIDIRECTIONAL, _STEPS, 2, 20)
    draw = np.random.default_rng(0)
    weights = LayerWeights(
        *(
            relax.const(draw.standard_normal((2, gates, 20, *rest)).astype(np.float32) / 4)
            for rest in ((7,), (20,), (), ())
        )
    )
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([_STEPS, 2, 7], "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            results = recurrent_layer(builder, builder.emit, recurrence, x, weights)
            output = builder.emit_output(relax.Tuple(results))
        builder.emit_func_output(output)
    target = tvm.target.Target(json.loads(resolve_target("native", 2)))
    lowered = lower(builder.get(), target)
    (layer,) = (workload for workload in lowered.workloads if workload.operator == cell)
    sketch = generate_sketches(layer.digest, layer.module, target)[0]
    values = tvm.runtime.tensor(draw.standard_normal((_STEPS, 2, 7)).astype(np.float32))
    found = []
    for chosen in ({}, {layer.digest: (sketch, Candidate(layer.digest, sketch.digest, ((16,), (2,), (2,))))}):
        program = assemble(lowered, chosen, target)
        machine = relax.VirtualMachine(program.executable, tvm.cpu())
        found.append([result.numpy() for result in machine["main"](values, *program.weights)])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
