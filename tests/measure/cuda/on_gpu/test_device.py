from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from kintune.core.candidate import Candidate
from kintune.core.device import Peak
from kintune.core.outcome import Outcome, Status
from kintune.core.stage_requests import Built, ProfileContext, ProfileItem
from kintune.errors import BuildError
from kintune.hardware.gpus import list_gpus

pytestmark = pytest.mark.tvm

LENGTH = 1024


def workload() -> Any:
    """out = relu(a @ w), the way networks come."""
    import tvm
    from tvm import te, topi

    a, w = te.placeholder((32, 64), name="a"), te.placeholder((64, 48), name="w")
    function = te.create_prim_func([a, w, topi.nn.relu(topi.matmul(a, w))])
    return tvm.IRModule({"main": function.with_attr("global_symbol", "main")})


def copying(*, into: str = "out", shift: int = 0, value: str = "data[i]") -> Any:
    """A kernel that is to copy `data` to `out`, and may do something else."""
    import tvm
    from tvm.script import from_source

    source = f"""
@T.prim_func(s_tir=True)
def main(data: T.Buffer(({LENGTH},), "float32"), out: T.Buffer(({LENGTH},), "float32")):
    T.func_attr({{"tirx.noalias": True, "tirx.is_scheduled": True, "global_symbol": "main"}})
    for block in T.thread_binding({LENGTH // 64}, thread="blockIdx.x"):
        for thread in T.thread_binding(64, thread="threadIdx.x"):
            {into}[block * 64 + thread + {shift}] = {value.replace("[i]", "[block * 64 + thread]")}
"""
    return tvm.IRModule({"main": from_source(source)})


def built(about: Any, module: Any, name: str) -> Built:
    import tvm

    from kintune.compiler.build import build_module

    return build_module(tvm.target.Target(json.loads(about.device_type.target)), copying(), module, name)


def profiled(device: Any, workload: str, reference: Built, *candidates: Built) -> list[Outcome]:
    about, handler = device
    context = ProfileContext(about.protocol, {workload: reference})
    handler.begin("profile", msgspec.msgpack.encode(context))
    items = [msgspec.msgpack.encode(ProfileItem(workload, candidate)) for candidate in candidates]
    return [msgspec.msgpack.decode(handler.item(item), type=Outcome) for item in items]


def test_the_device_says_which_gpu_it_is(device: Any) -> None:
    about, _ = device
    (first, *_) = list_gpus()
    assert about.device_type.isa == (first.architecture,)
    assert json.loads(about.device_type.target)["kind"] == "cuda"
    assert about.device_type.model
    assert about.device_type.threads == about.protocol.threads == len(about.cores) == 1
    assert about.pulse_us > 0


def test_its_peak_is_measured(device: Any) -> None:
    _, handler = device
    handler.begin("peak", b"")
    peak = msgspec.msgpack.decode(handler.item(b""), type=Peak)
    assert min(peak.gflops, peak.gbytes_per_s, peak.read_gbytes_per_s) > 0


def test_candidates_of_a_rule_and_drawn_ones_compute_what_the_untuned_program_does(device: Any) -> None:
    import numpy as np
    import tvm

    from kintune.compiler.build import CandidateBuilder
    from kintune.compiler.space.replay import save_workload
    from kintune.compiler.space.sketches import generate_sketches
    from kintune.core.stage_requests import BuildContext
    from kintune.search.evolve import draw
    from kintune.search.processor import Processor
    from kintune.search.rules import rule_candidates

    about, _ = device
    target = about.device_type.target
    module = workload()
    sketches = generate_sketches("dense", module, tvm.target.Target(json.loads(target)))
    rng = np.random.default_rng(1)
    candidates = [Candidate.untuned("dense"), *rule_candidates(sketches, Processor.of(about.device_type.isa), 3)]
    context = BuildContext(target, {"dense": save_workload(module)}, {sketch.digest: sketch for sketch in sketches})
    builder = CandidateBuilder(target)
    programs = [builder.build(context, candidate) for candidate in candidates]
    for sketch in sketches:
        programs.append(first_built(builder, context, (draw(sketch, rng) for _ in range(64))))
    outcomes = profiled(device, "dense", programs[0], *programs)
    assert [outcome.status for outcome in outcomes] == [Status.OK] * len(programs)
    assert all(time > 0 for outcome in outcomes for time in outcome.times_us)


def first_built(builder: Any, context: Any, candidates: Iterable[Any]) -> Any:
    """The first that builds: which drawn candidates a GPU rejects depends on its limits."""
    for candidate in candidates:
        with suppress(BuildError):
            return builder.build(context, candidate)
    raise AssertionError("no drawn candidate builds")


@pytest.mark.parametrize(
    ("wrong", "cause"),
    [
        ({"value": "data[i] + T.float32(1)"}, "wrong numbers"),
        ({"shift": 16}, "wrote out of bounds"),
        ({"into": "data", "value": "T.float32(3)"}, "wrote to an input"),
    ],
)
def test_what_a_kernel_does_wrong_is_found_out(device: Any, wrong: dict[str, Any], cause: str) -> None:
    about, _ = device
    reference = built(about, copying(), "reference")
    outcomes = profiled(device, f"copy {cause}", reference, built(about, copying(**wrong), "wrong"), reference)
    assert outcomes[0].status is Status.WRONG_RESULT
    assert cause in outcomes[0].cause
    assert outcomes[1].status is Status.OK
