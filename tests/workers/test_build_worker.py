from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kintune.core.candidate import Axis, Candidate, Decision, Tile
from kintune.core.messages import ItemFailed
from kintune.core.outcome import Status
from kintune.core.stage_requests import BuildContext, BuildItem, Built
from kintune.errors import BuildError, WireError
from kintune.workers.build_worker import BuildHandler

CANDIDATE = Candidate.untuned("w")
CONTEXT = msgspec.msgpack.encode(BuildContext("a target", {}, {}))
ITEM = msgspec.msgpack.encode(BuildItem(CANDIDATE))


class Builders:
    """Stands in for builders: answers with `result`, or raises it."""

    def __init__(self, result: Built | Exception) -> None:
        self.result = result
        self.targets: list[str] = []

    def __call__(self, target: str) -> Any:
        self.targets.append(target)
        return self

    def build(self, context: BuildContext, candidate: Candidate) -> Built:
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


def answer(handler: BuildHandler) -> Built:
    return msgspec.msgpack.decode(handler.item(ITEM), type=Built)


def test_one_builder_a_target() -> None:
    builders = Builders(Built("c", b"library"))
    handler = BuildHandler(builders)
    for _ in range(2):
        handler.begin("build", CONTEXT)
        assert answer(handler) == Built("c", b"library")
    assert builders.targets == ["a target"]


def test_a_failed_build_is_an_outcome_whose_cause_does_not_name_the_candidate() -> None:
    handler = BuildHandler(Builders(BuildError(f"{CANDIDATE.digest}: rejected by a rule")))
    handler.begin("build", CONTEXT)
    built = answer(handler)
    assert built.candidate == CANDIDATE.digest
    assert built.failure is not None
    assert (built.failure.status, built.failure.cause) == (Status.BUILD_FAILED, "rejected by a rule")


def test_a_bug_of_ours_is_not_the_candidates_failure() -> None:
    handler = BuildHandler(Builders(KeyError("a bug")))
    handler.begin("build", CONTEXT)
    with pytest.raises(KeyError):
        handler.item(ITEM)


def test_other_stages_and_items_out_of_order_are_refused() -> None:
    handler = BuildHandler(Builders(Built("c")))
    with pytest.raises(WireError, match="before a stage"):
        handler.item(ITEM)
    handler.begin("build", CONTEXT)
    with pytest.raises(WireError, match="'profile'"):
        handler.begin("profile", CONTEXT)
    with pytest.raises(WireError, match="before a stage"):
        handler.item(ITEM)


@pytest.mark.tvm
def test_a_process_builds_every_sketch_of_a_workload(start_worker: Any, dense: Any, native: str) -> None:
    import json

    import tvm

    from kintune.compiler.space.generator import load_intrinsics
    from kintune.compiler.space.replay import save_workload
    from kintune.compiler.space.sketches import generate_sketches

    load_intrinsics()
    sketches = generate_sketches("w", dense, tvm.target.Target(json.loads(native)))
    context = BuildContext(native, {"w": save_workload(dense)}, {sketch.digest: sketch for sketch in sketches})
    worker = start_worker("kintune.workers.build_worker")
    assert worker.hello.worker == "build"
    worker.begin("build", msgspec.msgpack.encode(context))
    for candidate in (
        CANDIDATE,
        *(Candidate("w", sketch.digest, tuple(small_decision(axis) for axis in sketch.axes)) for sketch in sketches),
    ):
        built = msgspec.msgpack.decode(worker.done(msgspec.msgpack.encode(BuildItem(candidate))), type=Built)
        assert built.failure is None
        assert built.candidate == candidate.digest
        assert [operand.role for operand in built.operands] == ["activation", "weight", "output"]
    for lacking in (Candidate("w", "elsewhere", ()), Candidate.untuned("elsewhere")):
        built = msgspec.msgpack.decode(worker.done(msgspec.msgpack.encode(BuildItem(lacking))), type=Built)
        assert built.failure is not None
        assert "elsewhere" in built.failure.cause
    worker.begin("prove", b"")
    assert isinstance(worker.ask(b""), ItemFailed)
    assert worker.close() == 0


@pytest.mark.tvm
def test_a_process_that_could_not_link_says_so_at_once(start_worker: Any, tmp_path: Path) -> None:
    (tmp_path / "ziglang").mkdir()
    (tmp_path / "ziglang" / "__init__.py").touch()  # in the place of the one that links
    places = os.pathsep.join([str(tmp_path), *sys.path])
    worker = start_worker("kintune.workers.build_worker", PATH="", CC="", PYTHONPATH=places)
    assert isinstance(worker.first, ItemFailed)
    assert worker.first.refused
    assert "no C compiler" in worker.first.cause
    assert worker.close() == 0


def small_decision(axis: Axis) -> Decision:
    """Small inner loops, which compile quickly."""
    if isinstance(axis, Tile):
        return (axis.extent // 2, *(1 for _ in range(axis.parts - 2)), 2)
    return (0,)
