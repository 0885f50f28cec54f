"""Networks with sums in bf16: their files list the instructions, and the native runtime asks for tiles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from kintune.core.candidate import Candidate, Sketch
from kintune.search.processor import Processor
from kintune.search.sketch_program import precision_of, program_of
from tests.compiler.programs.test_panel_sum import SAPPHIRE_RAPIDS, kinds
from tests.support.sums import NARROW

if TYPE_CHECKING:
    from tests.support.networks import Small

pytestmark = pytest.mark.tvm

ERROR = 0.02


def chosen(lowered: Any, target: Any) -> dict[str, tuple[Sketch, Candidate]]:
    """The first candidate in bf16 of each workload that has one."""
    from kintune.compiler.programs.registry import program_named
    from kintune.compiler.space.sketches import generate_sketches

    found = {}
    for workload in lowered.workloads:
        for sketch in generate_sketches(workload.digest, workload.module, target, NARROW):
            if precision_of(sketch) == "bf16":
                program, variant = program_named(program_of(sketch))
                decisions = program.rule(workload.module, variant, Processor(16, 32))[0]
                found[workload.digest] = sketch, Candidate(workload.digest, sketch.digest, decisions)
    return found


def described(target: str, sketches: list[Sketch], model: Any) -> Any:
    from kintune.compiler.graph.executable import describe_build

    return describe_build(
        model_name="small",
        model_digest="0" * 32,
        target=target,
        threads=1,
        inputs=model.inputs,
        outputs=model.outputs,
        chosen={},
        sketches=sketches,
    )


@pytest.mark.parametrize("network", ["small_conv", "small_transformer"])
def test_a_network_computes_the_same_up_to_rounding(
    network: str, request: pytest.FixtureRequest, native: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where its kernels are compiled already, each with the text of its inner kernels."""
    import tvm

    from kintune.compiler.build import build_candidate
    from kintune.compiler.graph.executable import build_executable
    from kintune.compiler.graph.lower import lower
    from kintune.compiler.programs.panel_sum import NarrowPanels
    from kintune.compiler.space.replay import save_workload
    from kintune.runtime.executable import Executable
    from kintune.runtime.inputs import draw_inputs

    monkeypatch.setattr(NarrowPanels, "least_flops", 0.0)
    small: Small = request.getfixturevalue(network)
    target = tvm.target.Target(json.loads(native))
    lowered = lower(small.model.module, target)
    programs = chosen(lowered, target)
    if {"amx", "dot"}.isdisjoint(kinds()):
        assert not programs
        return
    assert len(programs) >= 2
    modules = {workload.digest: save_workload(workload.module) for workload in lowered.workloads}
    built = [build_candidate(target, modules[workload], *choice) for workload, choice in programs.items()]
    inputs = draw_inputs(small.model.inputs, 0)
    results = []
    for choice, kernels in (({}, {}), (programs, {}), (programs, {each.candidate: each for each in built})):
        manifest = described(native, [sketch for sketch, _ in choice.values()], small.model)
        assert ("avx512bf16" in manifest.isa) == bool(choice)
        assert ("amxbf16" in manifest.isa) == ("amxtile" in manifest.isa) == (bool(choice) and "amx" in kinds())
        path = tmp_path / f"{len(results)}.kt"
        build_executable(lowered, choice, target, manifest, kernels).save(path)
        results.append(Executable.open(path).run(inputs))
    plain, narrow, linked = results
    for name, expected in plain.items():
        error = np.linalg.norm(narrow[name] - expected) / np.linalg.norm(expected)
        assert 0 < error < ERROR
        assert np.array_equal(narrow[name], linked[name])


def test_a_file_lists_what_its_kernels_need(small_conv: Small) -> None:
    """Also for another CPU than this one."""
    import tvm

    from kintune.runtime.target import resolve_target

    text = json.dumps(SAPPHIRE_RAPIDS)
    programs = chosen(small_conv.lowered, tvm.target.Target(SAPPHIRE_RAPIDS))
    sketches = [sketch for sketch, _ in programs.values()]
    assert sketches
    isa = described(resolve_target(text, 2), sketches, small_conv.model).isa
    assert {"amxtile", "amxbf16", "avx512bf16", "avx512f"} <= set(isa)
    assert "amxint8" not in isa
    assert not {"amxtile", "amxbf16", "avx512bf16"} & set(described(resolve_target(text, 2), [], small_conv.model).isa)
