"""Stock MetaSchedule with FamilySeer switched on: a cost model and a task scheduler as arguments of `tune_relax`.

pip install 'kintune[stock]'
python examples/stock_tuner.py            # two minutes or so on two cores
python examples/stock_tuner.py --trials 400 --families none
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from itertools import pairwise
from typing import Any

import numpy as np
import psutil
import tvm
from tvm import relax
from tvm.s_tir import meta_schedule as ms

from kintune.compiler.space.generator import load_intrinsics
from kintune.errors import InputError
from kintune.integrations.stock import FamilyCostModel, FamilyTaskScheduler
from kintune.runtime.target import resolve_target

THREADS = psutil.cpu_count(logical=False) or 1
WIDTHS = (256, 512, 384, 64)
BATCH = 64


def network() -> tvm.IRModule:
    """Three layers of different widths: three tasks, of one family."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((BATCH, WIDTHS[0]), "float32"))
    weights = [relax.Var(f"w{i}", relax.TensorType(shape, "float32")) for i, shape in enumerate(pairwise(WIDTHS))]
    with builder.function("main", [x, *weights]):
        with builder.dataflow():
            y = x
            for weight in weights:
                y = builder.emit(relax.op.nn.relu(relax.op.matmul(y, weight)))
            y = builder.emit_output(y)
        builder.emit_func_output(y)
    return relax.get_pipeline("zero")(builder.get())


def milliseconds(module: tvm.IRModule, target: tvm.target.Target) -> float:
    """The median time of one run."""
    machine = relax.VirtualMachine(relax.build(module, target), tvm.cpu())
    random = np.random.default_rng(0)
    shapes = [(BATCH, WIDTHS[0]), *pairwise(WIDTHS)]
    arguments = [tvm.runtime.tensor(random.standard_normal(shape, dtype=np.float32)) for shape in shapes]
    timed = machine.time_evaluator("main", tvm.cpu(), number=5, repeat=20)(*arguments)
    return float(np.median(timed.results)) * 1e3


def tune(module: tvm.IRModule, target: tvm.target.Target, wanted: argparse.Namespace) -> tuple[Any, Any, Any]:
    """Tune with stock MetaSchedule; only the arguments `cost_model` and `task_scheduler` are Kintune's."""
    model = FamilyCostModel(families=wanted.families, warmup_samples=wanted.round_size)
    scheduler = FamilyTaskScheduler(wanted.foresee, foresee_size=max(1, wanted.round_size // 4))
    with tempfile.TemporaryDirectory() as directory:
        database = ms.relax_integration.tune_relax(
            mod=module,
            params={},
            target=target,
            work_dir=directory,
            max_trials_global=wanted.trials,
            num_trials_per_iter=wanted.round_size,
            # Without the initializer, each build spends some ten seconds on the intrinsics of other machines.
            builder=ms.builder.LocalBuilder(max_workers=THREADS, initializer=load_intrinsics),
            seed=wanted.seed,
            cost_model=model,
            task_scheduler=scheduler,
        )
    return database, model, scheduler


def positive(text: str) -> int:
    """A number of at least 1."""
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def main() -> None:
    """Tune, and say what was reached."""
    parser = argparse.ArgumentParser(description="FamilySeer inside the stock tuner")
    parser.add_argument("--trials", type=positive, default=88, help="candidates to measure, for all tasks together")
    parser.add_argument("--round-size", type=positive, default=16, help="candidates of a full round")
    parser.add_argument("--families", default="op", help="which tasks share a cost model")
    parser.add_argument("--foresee", default="published", help="small rounds for siblings: published, guarded or none")
    parser.add_argument("--seed", type=int, default=1)
    wanted = parser.parse_args()
    os.environ.setdefault("TVM_NUM_THREADS", str(THREADS))  # the compiler's default is half of the cores
    load_intrinsics()
    target = tvm.target.Target(json.loads(resolve_target("native", THREADS)))
    module = network()
    database, model, scheduler = tune(module, target, wanted)
    with target, database:
        tuned = relax.transform.MetaScheduleApplyDatabase()(module)
    before, after = milliseconds(module, target), milliseconds(tuned, target)
    names = [str(record.ctx.task_name) for record in scheduler.tasks_]
    print()
    for family, members in model.families().items():
        print(f"family {family}: {', '.join(members)}")
    for turn in scheduler.turns:
        print(f"{turn.how.value:8} {turn.trials:3} trials for {names[turn.task]:22} best {1e3 * turn.best_ms:8.1f} us")
    print(f"{sum(turn.trials for turn in scheduler.turns)} trials: {before:.3f} ms untuned, {after:.3f} ms tuned")


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        print(f"stock_tuner: {error}", file=sys.stderr)
        sys.exit(2)
