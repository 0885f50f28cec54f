from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.tvm


def test_on_a_cpu_nothing_needs_a_schedule(tiny_conv: Any) -> None:
    from kintune.compiler.space.generator import default_schedule, space_generator

    assert default_schedule(tiny_conv.module, tiny_conv.target) is tiny_conv.module
    assert space_generator(tiny_conv.target) == "post-order-apply"


def test_rows_that_cannot_be_written_are_left_to_the_compiler(
    cpu: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import tvm
    from tvm import te, topi

    from kintune.compiler.space import generator

    def broken(_: Any) -> Any:
        raise RuntimeError("no such index")

    x = te.placeholder((8, 64), name="x")
    function = te.create_prim_func([x, topi.nn.softmax(x)], index_dtype_override="int64")
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    assert generator.default_schedule(module, cpu) is not module
    monkeypatch.setattr(generator, "write_rows", broken)
    assert generator.default_schedule(module, cpu) is module
    assert caplog.messages == ["rows cannot be written: no such index"]


def test_on_a_gpu_somebody_says_what_threads_do(tiny_conv: Any) -> None:
    import tvm

    from kintune.compiler.space.generator import default_schedule

    before = str(tiny_conv.module)
    scheduled = default_schedule(tiny_conv.module, tvm.target.Target({"kind": "cuda", "arch": "sm_90"}, host="llvm"))
    assert "threadIdx" in str(scheduled)
    assert str(tiny_conv.module) == before


def test_what_is_drawn_for_a_gpu_makes_programs(tiny_conv: Any) -> None:
    import json

    import numpy as np
    import tvm

    from kintune.compiler.space.replay import Replayer
    from kintune.compiler.space.sketches import generate_sketches
    from kintune.errors import BuildError
    from kintune.runtime.target import resolve_target
    from kintune.search.bounds import bounds_of
    from kintune.search.evolve import draw
    from kintune.search.processor import Processor
    from kintune.search.rules import rule_candidates

    target = tvm.target.Target(json.loads(resolve_target("cuda -arch=sm_90", 1)))
    sketches = generate_sketches("conv", tiny_conv.module, target)
    assert all(len(bounds_of(sketch)) == 2 for sketch in sketches)
    replay = Replayer(tiny_conv.module, target)
    rng = np.random.default_rng(2)
    ruled = rule_candidates(sketches, Processor.of(()), 4)
    drawn = [draw(sketch, rng) for sketch in sketches * 4]
    made = []
    for candidate in (*ruled, *drawn):
        try:
            taken = replay(next(s for s in sketches if s.digest == candidate.sketch), candidate).candidate
        except BuildError:  # what its threads share does not fit, say
            continue
        assert taken == candidate
        made.append(candidate)
    assert set(ruled) & set(made)
    assert len(made) > 0.5 * len(ruled + drawn)
