from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from kintune.core.candidate import Candidate, Sketch
from kintune.errors import BuildError

if TYPE_CHECKING:
    from tests.support.networks import RunsProgram, Small

pytestmark = pytest.mark.tvm

Chosen = dict[str, tuple[Sketch, Candidate]]


def _by_rule(small: Small) -> Chosen:
    """The rule's first program, of MetaSchedule's sketches, for every subgraph that is worth one."""
    from kintune.compiler.graph.workload import is_tunable
    from kintune.compiler.space.sketches import generate_sketches
    from kintune.search.processor import Processor
    from kintune.search.rules import rule_candidates
    from kintune.search.sketch_program import by_program

    tunable = is_tunable(small.lowered.workloads)
    chosen: Chosen = {}
    for workload in small.lowered.workloads:
        if workload.digest in tunable:
            groups = by_program(generate_sketches(workload.digest, workload.module, small.target))
            if "" not in groups:  # a pattern's function has programs of our own alone
                continue
            sketches = groups[""]
            (candidate,) = rule_candidates(sketches, Processor(8, 16), 1)
            chosen[workload.digest] = (next(s for s in sketches if s.digest == candidate.sketch), candidate)
    return chosen


def _inputs(small: Small) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        tensor.name: rng.integers(0, 2, tensor.shape) if tensor.dtype == "int64" else _normal(rng, tensor.shape)
        for tensor in small.model.inputs
    }


def _normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return rng.standard_normal(shape, np.float32)


@pytest.mark.parametrize("network", ["small_conv", "small_transformer"])
def test_tuned_untuned_and_onnxruntime_agree(
    network: str, request: pytest.FixtureRequest, run_program: RunsProgram
) -> None:
    import onnxruntime

    from kintune.compiler.graph.assemble import assemble

    small: Small = request.getfixturevalue(network)
    inputs = _inputs(small)
    session = onnxruntime.InferenceSession(small.onnx, providers=["CPUExecutionProvider"])
    expected = session.run(None, inputs)
    chosen = _by_rule(small)
    assert len(chosen) >= 3
    for programs in ({}, chosen):
        found = run_program(assemble(small.lowered, programs, small.target), *inputs.values())
        assert len(found) == len(expected)
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


def test_weights_are_packed_once_and_for_good(small_conv: Small, run_program: RunsProgram) -> None:
    """The kernels get them in the layout they want; running rearranges nothing."""
    from kintune.compiler.graph.assemble import assemble

    plain, tuned = (assemble(small_conv.lowered, c, small_conv.target) for c in ({}, _by_rule(small_conv)))
    assert len(tuned.weights) == len(plain.weights) == len(small_conv.lowered.weights)
    assert sum(w.numpy().size for w in tuned.weights) == sum(w.numpy().size for w in plain.weights)
    assert [tuple(w.shape) for w in tuned.weights] != [tuple(w.shape) for w in plain.weights]
    assert "layout_rewrite" not in tuned.executable.as_text()
    inputs = _inputs(small_conv).values()
    first, second = run_program(tuned, *inputs), run_program(tuned, *inputs)
    assert all(np.array_equal(one, other) for one, other in zip(first, second, strict=True))


def test_a_choice_of_the_untuned_program_is_no_choice(small_conv: Small) -> None:
    from kintune.compiler.graph.assemble import assemble

    digest, (sketch, _) = next(iter(_by_rule(small_conv).items()))
    programs = {digest: (sketch, Candidate.untuned(digest))}
    program = assemble(small_conv.lowered, programs, small_conv.target)
    assert [tuple(w.shape) for w in program.weights] == [tuple(w.shape) for w in small_conv.lowered.weights]


def test_a_program_that_cannot_be_applied_is_refused(small_conv: Small) -> None:
    from kintune.compiler.graph.assemble import assemble

    digest, (sketch, candidate) = next(iter(_by_rule(small_conv).items()))
    broken = Candidate(candidate.workload, candidate.sketch, candidate.decisions[1:])
    with pytest.raises(BuildError, match="open decisions"):
        assemble(small_conv.lowered, {digest: (sketch, broken)}, small_conv.target)


def test_programs_that_the_compiler_refuses_are_named(small_conv: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    from kintune.compiler.graph import assemble
    from kintune.compiler.graph.kernel_library import RefusedKernels

    seen: list[str] = []

    def refuse(module: Any, *_: Any) -> bytes:
        seen.extend(sorted(str(function.attrs["global_symbol"]) for _, function in module.functions_items())[:2])
        raise RefusedKernels(seen) from ValueError("no such instruction")

    monkeypatch.setattr(assemble, "build_kernels", refuse)
    inputs, outputs = small_conv.model.inputs, small_conv.model.outputs
    with pytest.raises(BuildError, match="the network cannot be compiled: no such instruction") as refused:
        assemble.assemble_plan(
            small_conv.lowered, _by_rule(small_conv), small_conv.target, inputs=inputs, outputs=outputs
        )
    assert refused.value.at_fault == {small_conv.lowered.functions[name.removesuffix("_prepacked")] for name in seen}
    assert len(seen) == 2


@pytest.mark.parametrize("network", ["small_conv", "small_transformer"])
def test_kernels_that_are_compiled_already_are_linked(
    network: str, request: pytest.FixtureRequest, run_program: RunsProgram
) -> None:
    """Scheduled ones, whose weights are packed, and untuned ones; the result is the same to the bit."""
    from kintune.compiler.build import build_candidate
    from kintune.compiler.graph.assemble import assemble
    from kintune.compiler.space.replay import save_workload

    small: Small = request.getfixturevalue(network)
    chosen = _by_rule(small)
    kernels = {}
    for workload in small.lowered.workloads:
        sketch, candidate = chosen.get(workload.digest, (None, Candidate.untuned(workload.digest)))
        built = build_candidate(small.target, save_workload(workload.module), sketch, candidate)
        kernels[built.candidate] = built
    whole = assemble(small.lowered, chosen, small.target)
    linked = assemble(small.lowered, chosen, small.target, kernels)
    used = {workload.digest for workload in small.lowered.workloads} & set(small.lowered.functions.values())
    assert len(linked.object_files) == len(used)
    inputs = _inputs(small).values()
    for one, other in zip(run_program(whole, *inputs), run_program(linked, *inputs), strict=True):
        assert np.array_equal(one, other)


def test_a_compiled_kernel_with_other_operands_is_not_used(small_conv: Small, run_program: RunsProgram) -> None:
    from kintune.compiler.graph.assemble import assemble
    from kintune.core.stage_requests import Built, KernelArgument

    digests = [Candidate.untuned(workload.digest).digest for workload in small_conv.lowered.workloads]
    wrong = {
        digest: Built(digest, b"?", (KernelArgument((1,), "int8", "output"),), object_file=b"?") for digest in digests
    }
    program = assemble(small_conv.lowered, {}, small_conv.target, wrong)
    assert program.object_files == ()
    run_program(program, *_inputs(small_conv).values())
