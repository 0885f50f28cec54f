"""The stock tuner itself, with its own builder, runner and database, and two arguments of ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.tvm


@pytest.fixture(scope="module")
def network() -> Any:
    """Two layers, lowered; `main` takes the input and both weights."""
    from tvm import relax

    builder = relax.BlockBuilder()
    x, first, second = (
        relax.Var(name, relax.TensorType(shape, "float32"))
        for name, shape in (("x", (16, 48)), ("first", (48, 64)), ("second", (64, 32)))
    )
    with builder.function("main", [x, first, second]):
        with builder.dataflow():
            hidden = builder.emit(relax.op.nn.relu(relax.op.matmul(x, first)))
            result = builder.emit_output(relax.op.nn.relu(relax.op.matmul(hidden, second)))
        builder.emit_func_output(result)
    return relax.get_pipeline("zero")(builder.get())


@pytest.mark.parametrize("builder", ["quick", pytest.param("stock", marks=pytest.mark.slow)])
def test_tune_relax_with_stocks_builder_runner_and_database(
    builder: str, network: Any, target: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The processes of stock's builder take long to start; the quick one builds in this process."""
    import tvm
    from tvm import relax
    from tvm.s_tir import meta_schedule as ms

    from kintune.compiler.space.generator import load_intrinsics
    from kintune.integrations.stock import FamilyCostModel, FamilyTaskScheduler
    from tests.support.quick_tuner import QUICK_TOOLS

    monkeypatch.setenv("TVM_NUM_THREADS", "1")
    model = FamilyCostModel("op", warmup_samples=4, threads=1)
    scheduler = FamilyTaskScheduler("published", foresee_size=2)
    stocks = ms.builder.LocalBuilder(max_workers=2, initializer=load_intrinsics) if builder == "stock" else None
    database = ms.relax_integration.tune_relax(
        mod=network,
        params={},
        target=target,
        work_dir=str(tmp_path),
        max_trials_global=14,
        num_trials_per_iter=4,
        builder=stocks or QUICK_TOOLS.builder(2),
        strategy=ms.search_strategy.EvolutionarySearch(population_size=32, init_min_unmeasured=4, genetic_num_iters=1),
        seed=1,
        cost_model=model,
        task_scheduler=scheduler,
    )
    assert [turn.how.value for turn in scheduler.turns] == ["first", "first", "full", "foresee"]
    assert [turn.trials for turn in scheduler.turns] == [4, 4, 4, 2]
    assert sorted(name for names in model.families().values() for name in names) == [
        "fused_matmul1_relu1",
        "fused_matmul_relu",
    ]
    written = (tmp_path / "database_tuning_record.json").read_text().splitlines()
    assert len(written) == 14
    assert all(json.loads(line) for line in written)
    logs = {path.name: path.stat().st_size for path in (tmp_path / "logs").iterdir()}
    assert sum("fused_matmul" in name and size > 0 for name, size in logs.items()) == 2
    with target, database:
        tuned = relax.transform.MetaScheduleApplyDatabase()(network)
    run = relax.VirtualMachine(relax.build(tuned, target), tvm.cpu())["main"]
    random = np.random.default_rng(0)
    x, first, second = (random.standard_normal(s, dtype=np.float32) for s in ((16, 48), (48, 64), (64, 32)))
    result = run(*(tvm.runtime.tensor(array) for array in (x, first, second))).numpy()
    np.testing.assert_allclose(result, np.maximum(np.maximum(x @ first, 0) @ second, 0), rtol=1e-4, atol=1e-4)
