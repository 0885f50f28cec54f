"""Winograd's convolution in a network: weights are transformed when it is built; candidates are checked."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from kintune.core.candidate import Candidate, Sketch
from kintune.core.measurement_protocol import MeasurementProtocol
from kintune.core.outcome import Status
from kintune.core.stage_requests import ProfileContext, ProfileItem
from tests.support.convolutions import Case, workload

if TYPE_CHECKING:
    import tvm

    from tests.support.networks import RunsProgram, Small

pytestmark = pytest.mark.tvm


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> str:
    """The program's name; it is offered in both sizes wherever it can compute a convolution."""
    from kintune.compiler.programs import registry, winograd

    name = "winograd_blocked"
    found = next(each for each in registry.PROGRAMS if each.name == name)
    monkeypatch.setattr(winograd, "_BEHIND", 1e9)
    monkeypatch.setattr(registry, "PROGRAMS", (found,))
    return name


def chosen(workload: str, module: tvm.IRModule, target: Any) -> dict[str, tuple[Sketch, Candidate]]:
    """The first candidate of each size of tiles."""
    from kintune.compiler.space.sketches import generate_sketches
    from kintune.compiler.space.tvm_space import TvmSpace
    from kintune.search.processor import Processor
    from kintune.search.sketch_program import by_program

    found = {}
    for name, sketches in by_program(generate_sketches(workload, module, target)).items():
        if name:
            space = TvmSpace({workload: module}, sketches, target, Processor(8, 16), 1)
            candidate = space.rules(workload, 1)[0]
            found[name.partition(":")[2][0]] = next(s for s in sketches if s.digest == candidate.sketch), candidate
    return found


@pytest.mark.usefixtures("program")
@pytest.mark.parametrize("size", ["4", "2"])
def test_a_network_computes_the_same(size: str, small_conv: Small, run_program: RunsProgram) -> None:
    from kintune.compiler.graph.assemble import assemble
    from kintune.compiler.space.packing import packing_of
    from kintune.compiler.space.replay import apply_candidate

    programs = {}
    for each in small_conv.lowered.workloads:
        found = chosen(each.digest, each.module, small_conv.target)
        if size in found:
            programs[each.digest] = found[size]
            assert packing_of(apply_candidate(each.module, *found[size], small_conv.target))
    assert len(programs) >= 1
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(tensor.shape, np.float32) for tensor in small_conv.model.inputs]
    plain, tuned = (assemble(small_conv.lowered, c, small_conv.target) for c in ({}, programs))
    assert sum(w.numpy().size for w in tuned.weights) > sum(w.numpy().size for w in plain.weights)
    for ours, theirs in zip(run_program(tuned, *inputs), run_program(plain, *inputs), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.usefixtures("program")
def test_candidates_have_features(native: str) -> None:
    import tvm

    from kintune.compiler.space.sketches import generate_sketches
    from kintune.compiler.space.tvm_space import TvmSpace
    from kintune.search.processor import Processor

    module, target = workload(Case(after=("bias", "relu"))), tvm.target.Target(json.loads(native))
    space = TvmSpace({"w": module}, generate_sketches("w", module, target), target, Processor(16, 32), 1)
    drafts = space.verify(space.rules("w", 8))
    assert len(drafts) == 8
    assert all(draft is not None and np.isfinite(draft.features).all() for draft in drafts)


@pytest.mark.usefixtures("program")
def test_a_candidate_is_compared_with_the_untuned_program(native: str) -> None:
    """Its weights have one value, in whatever form they are."""
    import tvm

    from kintune.compiler.build import build_candidate
    from kintune.compiler.space.replay import save_workload
    from kintune.hardware.cores import choose_cores
    from kintune.measure.interference import InterferenceFilter
    from kintune.measure.run import Runner

    module, target = workload(Case(height=9, after=("bias", "relu"))), tvm.target.Target(json.loads(native))
    reference = build_candidate(target, save_workload(module), None, Candidate.untuned("w"))
    runner = Runner(choose_cores(1), interference=InterferenceFilter(waited=lambda: 0.0))
    protocol = MeasurementProtocol(threads=1, repeats=2, max_seconds=0.01)
    found = chosen("w", module, target)
    assert len(found) == 2
    for sketch, candidate in found.values():
        built = build_candidate(target, save_workload(module), sketch, candidate)
        assert [operand.role for operand in built.operands] == ["activation", "weight", "activation", "output"]
        runner.begin(ProfileContext(protocol, {"w": reference}, rtol=1e-4, atol=1e-4))
        assert runner.profile(ProfileItem("w", built)).status is Status.OK
        runner.begin(ProfileContext(protocol, {"w": reference}, rtol=0.0, atol=1e-9))
        assert runner.profile(ProfileItem("w", built)).status is Status.WRONG_RESULT


def test_arithmetic_is_less_than_the_workload_s() -> None:
    from kintune.compiler.graph.workload import describe
    from kintune.compiler.programs.arithmetic import flops_of, least_flops

    described = describe("conv", workload(Case(height=28, width=28, channels=128, filters=128)))
    names = [f"winograd_blocked.5:{variant}" for variant in ("4x16", "2x16")]
    four, two = (flops_of(described.module, described.flops, name) for name in names)
    assert 0.25 * described.flops < four < 0.35 * described.flops < two < 0.6 * described.flops
    assert least_flops(described.module, described.flops, [*names, ""]) == four
    assert flops_of(described.module, described.flops, "") == described.flops
