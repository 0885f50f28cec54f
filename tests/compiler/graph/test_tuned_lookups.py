"""Programs with lookups compute the same, tuned and untuned, whatever layouts the schedules choose for weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.examples import compiled_examples

if TYPE_CHECKING:
    import tvm

    from kintune.compiler.graph.lower import Lowered
    from tests.support.networks import RunsProgram

    Expr = Any
    Step = Callable[["_Drawing", Expr], Expr]

pytestmark = pytest.mark.tvm

SIZE = 16
"""All values are matrices of so many rows and columns, so that any step may follow any other."""


class _Drawing:
    """A program under construction: constants, of which several steps may use the same, and one input of indices."""

    def __init__(self, seed: int) -> None:
        from tvm import relax

        self.rng = np.random.default_rng(seed)
        self.builder = relax.BlockBuilder()
        self.ids = relax.Var("ids", relax.TensorType([SIZE], "int64"))
        self.tables = [self.constant(self.rng.standard_normal((SIZE, SIZE), np.float32) / 4) for _ in range(2)]

    def constant(self, values: Any) -> Expr:
        import tvm
        from tvm import relax

        return relax.const(tvm.runtime.tensor(np.ascontiguousarray(values)))

    def table(self) -> Expr:
        return self.tables[self.rng.integers(len(self.tables))]

    def indices(self, *shape: int) -> Expr:
        return self.constant(self.rng.integers(0, SIZE, shape, np.int64))


def _product(d: _Drawing, x: Expr) -> Expr:
    from tvm import relax

    return relax.op.matmul(x, d.table())


def _sum(d: _Drawing, x: Expr) -> Expr:
    from tvm import relax

    return relax.op.add(x, d.table())


def _exponential(_d: _Drawing, x: Expr) -> Expr:
    from tvm import relax

    return relax.op.tanh(x)


def _take(d: _Drawing, x: Expr) -> Expr:
    from tvm import relax

    return relax.op.add(relax.op.take(d.table(), d.ids, axis=int(d.rng.integers(2)), mode="clip"), x)


def _take_rows(d: _Drawing, x: Expr) -> Expr:
    from tvm import relax

    return relax.op.take(x, d.indices(SIZE), axis=int(d.rng.integers(2)), mode="clip")


def _take_by_table(d: _Drawing, x: Expr) -> Expr:
    """The index is itself looked up."""
    from tvm import relax

    index = d.builder.emit(relax.op.take(d.indices(SIZE), d.ids, axis=0, mode="clip"))
    return relax.op.add(relax.op.take(d.table(), index, axis=0, mode="clip"), x)


def _take_at_sum(d: _Drawing, x: Expr) -> Expr:
    """The index is computed from a constant."""
    from tvm import relax

    index = d.builder.emit(relax.op.floor_mod(relax.op.add(d.ids, d.indices(SIZE)), relax.const(SIZE, "int64")))
    return relax.op.add(relax.op.take(d.table(), index, axis=0, mode="clip"), x)


def _gather_nd(d: _Drawing, x: Expr) -> Expr:
    from tvm import relax

    return relax.op.gather_nd(x, d.indices(SIZE, SIZE, 2))


def _gather_elements(d: _Drawing, x: Expr) -> Expr:
    from tvm import relax

    return relax.op.gather_elements(x, d.indices(SIZE, SIZE), axis=int(d.rng.integers(2)))


def _scatter_elements(d: _Drawing, x: Expr) -> Expr:
    from tvm import relax

    order = d.constant(np.argsort(d.rng.random((SIZE, SIZE)), axis=0).astype(np.int64))
    return relax.op.scatter_elements(x, order, d.table(), axis=0, reduction="add")


def _scatter_rows(d: _Drawing, x: Expr) -> Expr:
    from tvm import relax

    return relax.op.scatter_nd(x, d.constant(d.rng.permutation(SIZE)[:, None]), d.table(), "add")


def _reverse(_d: _Drawing, x: Expr) -> Expr:
    from tvm import relax

    return relax.op.flip(x, 0)


def _shifted_difference(d: _Drawing, x: Expr) -> Expr:
    """A table read at two places of one operator."""
    from tvm import relax

    return relax.op.subtract(relax.op.matmul(x, d.tables[0]), d.tables[0])


STEPS: tuple[Any, ...] = (
    _product,
    _sum,
    _exponential,
    _take,
    _take_rows,
    _take_by_table,
    _take_at_sum,
    _gather_nd,
    _gather_elements,
    _scatter_elements,
    _scatter_rows,
    _reverse,
    _shifted_difference,
)


def _module(steps: list[Any], seed: int) -> tvm.IRModule:
    """A function `main(ids, x)` that sends `x` through the steps."""
    from tvm import relax

    d = _Drawing(seed)
    x = relax.Var("x", relax.TensorType([SIZE, SIZE], "float32"))
    with d.builder.function("main", [d.ids, x]):
        with d.builder.dataflow():
            value: Expr = x
            for step in steps:
                value = d.builder.emit(step(d, value))
            output = d.builder.emit_output(value)
        d.builder.emit_func_output(output)
    return d.builder.get()


def _choices(lowered: Lowered, target: tvm.target.Target, seed: int, rounds: int) -> list[dict[str, Any]]:
    """Programs for all workloads: the rule's, and in each further round a drawn one of another sketch."""
    from kintune.compiler.space.replay import Replayer
    from kintune.compiler.space.sketches import generate_sketches
    from kintune.search.evolve import draw
    from kintune.search.processor import Processor
    from kintune.search.rules import rule_candidates

    rng = np.random.default_rng(seed)
    chosen: list[dict[str, Any]] = [{} for _ in range(rounds)]
    for workload in lowered.workloads:
        sketches = generate_sketches(workload.digest, workload.module, target)
        by_digest = {sketch.digest: sketch for sketch in sketches}
        tried = rule_candidates(sketches, Processor(8, 16), 1)
        tried += [draw(sketch, rng) for sketch in sketches for _ in range(3)]
        replay = Replayer(workload.module, target)
        works = []
        for candidate in tried:
            try:
                works.append((by_digest[candidate.sketch], replay(by_digest[candidate.sketch], candidate).candidate))
            except Exception:  # draws that make no program
                continue
        for number, choice in zip(range(rounds), works, strict=False):
            chosen[number][workload.digest] = choice
    return chosen


def check(steps: list[Any], seed: int, target: tvm.target.Target, run: RunsProgram, rounds: int = 4) -> int:
    """Compare the programs; how many kernels were tuned."""
    from kintune.compiler.graph.assemble import assemble
    from kintune.compiler.graph.lower import lower

    lowered = lower(_module(steps, seed), target)
    rng = np.random.default_rng(seed)
    inputs = rng.integers(0, SIZE, SIZE, np.int64), rng.standard_normal((SIZE, SIZE), np.float32)
    (expected,) = run(assemble(lowered, {}, target), *inputs)
    tuned = 0
    for chosen in _choices(lowered, target, seed, rounds):
        if chosen:
            (found,) = run(assemble(lowered, chosen, target), *inputs)
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
            tuned += len(chosen)
    return tuned


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__.strip("_"))
def test_each_step_between_products(step: Any, cpu: tvm.target.Target, run_program: RunsProgram) -> None:
    assert check([_product, step, _product], 1, cpu, run_program)


@compiled_examples(8, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(steps=st.lists(st.sampled_from(STEPS), min_size=2, max_size=4), seed=st.integers(0, 1000))
def test_any_steps(steps: list[Any], seed: int, cpu: tvm.target.Target, run_program: RunsProgram) -> None:
    check(steps, seed, cpu, run_program, rounds=2)


@pytest.mark.slow
@given(steps=st.lists(st.sampled_from(STEPS), min_size=1, max_size=6), seed=st.integers(0, 1000))
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_any_more_steps(steps: list[Any], seed: int, cpu: tvm.target.Target, run_program: RunsProgram) -> None:
    check(steps, seed, cpu, run_program)
