"""Small tasks, and a builder and a runner that compile and time nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest


class Bench(NamedTuple):
    """What stock's `tune_tasks` is given besides tasks, cost model and scheduler.

    `built` holds each build's size, and `rows` its task's rows.  A task whose rows are in `falling` takes so many
    microseconds in its first round and less in each further one.
    """

    builder: Any
    runner: Any
    built: list[int]
    rows: list[int]
    falling: dict[int, float]


@pytest.fixture(scope="session")
def target() -> Any:
    import json

    import tvm

    from kintune.compiler.space.generator import load_intrinsics
    from kintune.runtime.target import resolve_target

    load_intrinsics()
    return tvm.target.Target(json.loads(resolve_target("native", 2)))


@pytest.fixture(scope="session")
def task(target: Any) -> Callable[..., Any]:
    """A tuning context: a matrix product with a rectifier, or a sum of rows, with a search that takes no time."""
    import tvm
    from tvm import te, topi
    from tvm.s_tir import meta_schedule as ms

    def make(kind: str, rows: int, columns: int = 32, *, seed: int = 1, strategy: Any = None) -> Any:
        a = te.placeholder((rows, 48), name="a")
        if kind == "matmul":
            b = te.placeholder((48, columns), name="b")
            arguments, name = [a, b, topi.nn.relu(topi.nn.matmul(a, b))], "fused_matmul_relu"
        else:
            arguments, name = [a, topi.sum(a, axis=1)], "sum"
        function = te.create_prim_func(arguments).with_attr("global_symbol", "main")
        if strategy is None:
            strategy = ms.search_strategy.EvolutionarySearch(
                population_size=24, init_min_unmeasured=4, genetic_num_iters=1
            )
        return ms.TuneContext(
            tvm.IRModule({"main": function}),
            target=target,
            space_generator="post-order-apply",
            search_strategy=strategy,
            task_name=f"{name}{rows}",
            rand_state=seed,
            num_threads=1,
        ).clone()

    return make


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A program's time is drawn from its hash; every fifth does not build.

    Stock removes the directory of every artifact, so each has one of its own.
    """
    from tvm.ir.utils import derived_object
    from tvm.s_tir import meta_schedule as ms
    from tvm.s_tir.meta_schedule.utils import shash2hex

    built: list[int] = []
    rows: list[int] = []
    falling: dict[int, float] = {}

    @derived_object
    class Builder(ms.builder.PyBuilder):  # type: ignore[misc]
        def build(self, build_inputs: Any) -> Any:
            built.append(len(build_inputs))
            rows.append(int(build_inputs[0].mod["main"].params[0].shape[0]))
            return [self._one(int(shash2hex(each.mod), 16)) for each in build_inputs]

        def _one(self, number: int) -> Any:
            if number % 5 == 0:
                return ms.builder.BuilderResult(None, "does not build")
            home = tmp_path / f"{sum(built)}-{number}"
            home.mkdir(exist_ok=True)
            fixed = falling.get(rows[-1])
            time_us = 1 + number % 1000 if fixed is None else fixed / (1 + rows.count(rows[-1]) ** 2)
            return ms.builder.BuilderResult(str(home / str(time_us)), None)

    @derived_object
    class Future(ms.runner.PyRunnerFuture):  # type: ignore[misc]
        def __init__(self, seconds: float) -> None:
            super().__init__()
            self.seconds = seconds

        def done(self) -> bool:
            return True

        def result(self) -> Any:
            return ms.runner.RunnerResult([self.seconds], None)

    @derived_object
    class Runner(ms.runner.PyRunner):  # type: ignore[misc]
        def run(self, runner_inputs: Any) -> Any:
            return [Future(float(Path(str(each.artifact_path)).name) * 1e-6) for each in runner_inputs]

    return Bench(Builder(), Runner(), built, rows, falling)
