from __future__ import annotations

import json
from typing import Any

import pytest

from kintune.core.candidate import Candidate
from kintune.core.stage_requests import Built
from kintune.errors import BuildError

pytestmark = pytest.mark.tvm


def target(native: str) -> Any:
    import tvm

    return tvm.target.Target(json.loads(native))


def test_operands_and_roles_are_the_workloads(healthy: Built) -> None:
    assert [(o.shape, o.dtype, o.role) for o in healthy.operands] == [
        ((48, 48), "float32", "activation"),
        ((48, 48), "float32", "weight"),
        ((48, 48), "float32", "output"),
    ]


def test_the_artifact_is_a_library_that_computes(healthy: Built) -> None:
    import numpy as np
    import tvm

    from kintune.runtime.artifact import load_artifact

    a, w = (np.random.default_rng(seed).standard_normal((48, 48), np.float32) for seed in (1, 2))
    out = tvm.runtime.tensor(np.zeros((48, 48), np.float32))
    load_artifact(healthy.artifact)["main"](tvm.runtime.tensor(a), tvm.runtime.tensor(w), out)
    np.testing.assert_allclose(out.numpy(), np.maximum(a @ w, 0), rtol=1e-4, atol=1e-4)


def test_a_candidate_without_a_sketch_is_the_workload_as_the_compiler_builds_it(dense: Any, native: str) -> None:
    from kintune.compiler.build import build_candidate
    from kintune.compiler.space.replay import save_workload

    candidate = Candidate.untuned("w")
    built = build_candidate(target(native), save_workload(dense), None, candidate)
    assert built.candidate == candidate.digest
    assert built.failure is None
    assert built.artifact.startswith(b"\x7fELF")


def test_weights_have_the_shape_that_a_schedule_packs_them_in(dense: Any, native: str) -> None:
    """A schedule that tiles w into (3, 48, 16) and says so the way layout rewriting does."""
    import tvm

    from kintune.compiler.build import build_module

    schedule = tvm.s_tir.Schedule(dense)
    block = schedule.get_sblock("matmul", func_name="main")
    cached = schedule.cache_read(block, 1, "global")
    schedule.transform_layout(block, ("read", 1), lambda k, j: (j // 16, k, j % 16))
    schedule.annotate(cached, "meta_schedule.layout_rewrite_preproc", True)
    built = build_module(target(native), dense, schedule.mod, "packed")
    assert [(o.shape, o.role) for o in built.operands[1:]] == [((3, 48, 16), "weight"), ((48, 48), "output")]


def test_a_schedule_that_does_not_lower_is_one_line(dense: Any, native: str) -> None:
    """Threads of a GPU on a CPU."""
    import tvm

    from kintune.compiler.build import build_module

    schedule = tvm.s_tir.Schedule(dense)
    schedule.bind(schedule.get_loops(schedule.get_sblock("matmul", func_name="main"))[0], "threadIdx.x")
    with pytest.raises(BuildError) as caught:
        build_module(target(native), dense, schedule.mod, "bound")
    assert "\n" not in str(caught.value)
    assert str(caught.value)


def test_dynamic_shapes_and_scalars_are_refused(native: str) -> None:
    import tvm
    from tvm import te

    from kintune.compiler.build import build_module

    n = te.var("n")
    x = te.placeholder((n,), name="x")
    dynamic = tvm.IRModule({"main": te.create_prim_func([x, te.compute((n,), lambda i: x[i] + x[i], name="y")])})
    with pytest.raises(BuildError, match="not a constant shape: x is"):
        build_module(target(native), dynamic, dynamic, "dynamic")


@pytest.mark.needs("aarch64-linker")
def test_programs_for_another_architecture_are_objects_of_it(dense: Any) -> None:
    import tvm

    from kintune.compiler.build import build_candidate
    from kintune.compiler.space.replay import save_workload

    board = tvm.target.Target({"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a76", "num-cores": 4})
    built = build_candidate(board, save_workload(dense), None, Candidate.untuned("w"))
    assert built.artifact.startswith(b"\x7fELF")
    assert int.from_bytes(built.artifact[18:20], "little") == 183  # EM_AARCH64


def test_vectors_are_tested_for_nan_as_a_whole(native: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler's own rule takes a vector apart for that."""
    import tvm
    from tvm import te, tirx

    from kintune.compiler import build

    source = te.placeholder((64,), name="source")
    result = te.compute((64,), lambda i: tirx.Select(tirx.isnan(source[i]), source[i], source[i] + 1), name="result")
    function = te.create_prim_func([source, result]).with_attr("global_symbol", "main")
    schedule = tvm.s_tir.Schedule(tvm.IRModule({"main": function}))
    _, inner = schedule.split(schedule.get_loops(schedule.get_sblock("result"))[0], [None, 16])
    schedule.vectorize(inner)
    tvm.ir.Op.get("tirx.isnan").reset_attr("TVectorizable")
    texts: list[str] = []

    def compiled(module: Any, for_target: Any) -> Any:
        made = compile_(module, for_target)
        texts.append(made.mod.inspect_source("ll"))
        return made

    compile_ = tvm.compile
    monkeypatch.setattr(tvm, "compile", compiled)
    build.build_module(target(native), tvm.IRModule({"main": function}), schedule.mod, "c")
    assert "fcmp uno <16 x float>" in texts[0]
