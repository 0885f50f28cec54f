from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from kintune.errors import InputError
from kintune.search.family import algorithms

pytestmark = pytest.mark.tvm


@pytest.fixture
def tune(bench: Any, tmp_path: Path) -> Callable[..., Any]:
    """Run stock's `tune_tasks`; returns the database."""
    from tvm.s_tir import meta_schedule as ms

    def run(tasks: Sequence[Any], model: Any, scheduler: Any, trials: int, **options: Any) -> Any:
        options = {"num_trials_per_iter": 8, "task_weights": [1.0] * len(tasks), **options}
        return ms.tune_tasks(
            tasks=tasks,
            work_dir=str(tmp_path),
            max_trials_global=trials,
            builder=bench.builder,
            runner=bench.runner,
            database=ms.database.MemoryDatabase(),
            cost_model=model,
            task_scheduler=scheduler,
            **options,
        )

    return run


def test_a_sibling_is_foreseen_after_each_full_round(task: Any, tune: Any, bench: Any) -> None:
    from kintune.integrations.stock import FamilyCostModel, FamilyTaskScheduler
    from kintune.integrations.stock.task_history import RoundReason

    tasks = [task("matmul", 16), task("sum", 512), task("matmul", 32)]
    model = FamilyCostModel("op", warmup_samples=8, threads=1)
    scheduler = FamilyTaskScheduler("published", foresee_size=3)
    database = tune(tasks, model, scheduler, 64, task_weights=[5.0, 1.0, 1.0])
    turns = scheduler.turns
    assert [(turn.task, turn.how) for turn in turns[:3]] == [
        (0, RoundReason.FIRST),
        (1, RoundReason.FIRST),
        (2, RoundReason.FIRST),
    ]
    full = [i for i, turn in enumerate(turns) if turn.how is RoundReason.FULL]
    assert full
    for i in full:
        if turns[i].task == 1:
            assert all(turn.how is not RoundReason.FORESEE for turn in turns[i + 1 : i + 2])
        elif i + 1 < len(turns):
            assert (turns[i + 1].how, turns[i + 1].task) == (RoundReason.FORESEE, 2 - turns[i].task)
            assert turns[i + 1].trials <= 3
    assert [turn.trials for turn in turns] == bench.built
    assert sum(bench.built) >= 64 > sum(bench.built) - 8
    assert len(database.get_all_tuning_records()) == sum(bench.built)
    assert sum(record.build_error_count for record in scheduler.tasks_) > 0
    assert all(record.is_terminated for record in scheduler.tasks_)


@pytest.mark.parametrize(
    "algorithm",
    [name if name in ("op", "measured") else pytest.param(name, marks=pytest.mark.slow) for name in algorithms()],
)
def test_every_family_algorithm_tunes(task: Any, tune: Any, bench: Any, algorithm: str) -> None:
    from kintune.integrations.stock import FamilyCostModel, FamilyTaskScheduler

    tasks = [task("matmul", 16), task("sum", 64), task("matmul", 32)]
    model, scheduler = FamilyCostModel(algorithm, warmup_samples=8, threads=1), FamilyTaskScheduler(foresee_size=4)
    tune(tasks, model, scheduler, 60)
    assert sorted(name for names in model.families().values() for name in names) == [
        "fused_matmul_relu16",
        "fused_matmul_relu32",
        "sum64",
    ]
    assert sum(turn.trials for turn in scheduler.turns) == sum(bench.built) >= 60
    foreseen = [turn for turn in scheduler.turns if turn.how.value == "foresee"]
    assert not foreseen or algorithm != "ind"


@pytest.mark.parametrize("foresee", ["guarded", "published"])
def test_what_was_predicted_is_compared_with_what_was_measured(
    task: Any, tune: Any, monkeypatch: pytest.MonkeyPatch, foresee: Any
) -> None:
    from kintune.integrations.stock import FamilyCostModel, FamilyTaskScheduler
    from kintune.search.cost_model import Trust

    judged: list[tuple[int, bool]] = []

    def judge(
        self: Trust, family: str, predicted: list[float], times: list[float], *, foreseen: bool, improved: bool
    ) -> None:
        assert family == "op:dense"
        assert len(predicted) == len(times)
        judged.append((len(times), foreseen))

    monkeypatch.setattr(Trust, "judge", judge)
    monkeypatch.setattr(Trust, "size", lambda self, family, full: full // 2)
    scheduler = FamilyTaskScheduler(foresee, foresee_size=8)
    tune([task("matmul", 16), task("matmul", 32)], FamilyCostModel(warmup_samples=8, threads=1), scheduler, 48)
    small = [turn.trials for turn in scheduler.turns if turn.how.value == "foresee"]
    if foresee == "published":
        assert not judged
        assert max(small) == 8
    else:
        unready = len(scheduler.turns) - len(judged)
        assert unready <= 2
        assert judged == [(turn.trials, turn.how.value == "foresee") for turn in scheduler.turns[unready:]]
        assert max(small) == 4


@pytest.mark.slow
def test_a_doubted_round_too_small_to_pay_is_left_out(task: Any, tune: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from kintune.integrations.stock import FamilyCostModel, FamilyTaskScheduler
    from kintune.search.cost_model import Trust

    monkeypatch.setattr(Trust, "size", lambda self, family, full: 3)
    for foresee_size, expected in ((8, False), (3, True)):
        scheduler = FamilyTaskScheduler("guarded", foresee_size=foresee_size)
        tune([task("matmul", 16), task("matmul", 32)], FamilyCostModel(warmup_samples=4, threads=1), scheduler, 32)
        assert any(turn.how.value == "foresee" for turn in scheduler.turns) is expected


def test_no_task_gets_more_than_its_share(task: Any, tune: Any, bench: Any) -> None:
    from kintune.integrations.stock import FamilyCostModel, FamilyTaskScheduler

    tasks = [task("matmul", 16), task("matmul", 32)]
    scheduler = FamilyTaskScheduler("published", foresee_size=3)
    tune(tasks, FamilyCostModel("none", warmup_samples=4, threads=1), scheduler, 1000, max_trials_per_task=19)
    spent = [sum(turn.trials for turn in scheduler.turns if turn.task == i) for i in range(2)]
    assert spent == [19, 19]
    assert sum(bench.built) == 38


@pytest.mark.slow  # tests/search/test_session.py says so of the search
def test_one_seed_one_course(task: Any, tune: Any) -> None:
    from kintune.integrations.stock import FamilyCostModel, FamilyTaskScheduler

    courses = []
    for _ in range(2):
        scheduler = FamilyTaskScheduler()
        tune([task("matmul", 16), task("matmul", 24)], FamilyCostModel(warmup_samples=8, threads=1), scheduler, 40)
        courses.append(scheduler.turns)
    assert courses[0] == courses[1]
    assert math.isfinite(courses[0][-1].best_ms)


def test_the_users_tasks_stay_as_they_were(task: Any, tune: Any) -> None:
    from tvm.s_tir import meta_schedule as ms

    from kintune.integrations.stock import FamilyCostModel, FamilyTaskScheduler

    tasks = [task("matmul", 16)]
    scheduler = FamilyTaskScheduler()
    tune(tasks, FamilyCostModel(threads=1), scheduler, 8)
    assert isinstance(tasks[0].search_strategy, ms.search_strategy.EvolutionarySearch)
    tune(tasks, FamilyCostModel(threads=1), scheduler, 8)
    assert sum(turn.trials for turn in scheduler.turns) <= 8
    tune(tasks, "xgb", "gradient", 8)


def test_a_model_without_families_is_refused_unless_nothing_is_foreseen(task: Any, tune: Any) -> None:
    from kintune.integrations.stock import FamilyTaskScheduler

    with pytest.raises(InputError, match=r"needs cost_model=FamilyCostModel\(\.\.\.\), not XGBModel"):
        tune([task("matmul", 16)], "xgb", FamilyTaskScheduler(), 8)
    scheduler = FamilyTaskScheduler("none")
    tune([task("matmul", 16), task("sum", 64)], "xgb", scheduler, 24)
    assert len(scheduler.turns) >= 2


@pytest.mark.slow
def test_without_foresee_the_choice_is_stocks(task: Any, tune: Any, bench: Any) -> None:
    """Times that depend on the task and the round alone: our gradient and stock's pick the same tasks."""
    from kintune.integrations.stock import FamilyTaskScheduler

    tasks = [task("matmul", 16), task("matmul", 40), task("sum", 256)]
    bench.falling.update({16: 800.0, 40: 500.0, 256: 300.0})
    courses = []
    for scheduler in ("gradient", FamilyTaskScheduler("none")):
        bench.rows.clear()
        tune(tasks, "random", scheduler, 160, task_weights=[1.0, 3.0, 2.0])
        courses.append(tuple(bench.rows))
    # Stock's random model draws without a seed: a round now and then has fewer candidates, and one round more follows.
    common = min(len(course) for course in courses)
    assert courses[0][:common] == courses[1][:common]
    assert common > 15
    assert len(set(courses[0][3:])) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"foresee": "sometimes"}, "unknown kind of foresee 'sometimes'; use one of: none, published, guarded"),
        ({"foresee_size": 0}, "foresee_size=0"),
        ({"window": 0}, "window=0"),
        ({"alpha": 2.0}, r"alpha=2\.0"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments: dict[str, Any], message: str) -> None:
    from kintune.integrations.stock import FamilyTaskScheduler

    with pytest.raises(InputError, match=message):
        FamilyTaskScheduler(**arguments)


def test_a_function_of_tensor_ir_is_tuned_alike(task: Any, target: Any, bench: Any, tmp_path: Path) -> None:
    from tvm.s_tir import meta_schedule as ms

    from kintune.integrations.stock import FamilyCostModel, FamilyTaskScheduler

    model, scheduler = FamilyCostModel(warmup_samples=8, threads=1), FamilyTaskScheduler()
    database = ms.tir_integration.tune_tir(
        task("matmul", 16).mod,
        target,
        str(tmp_path / "work"),
        16,
        num_trials_per_iter=8,
        builder=bench.builder,
        runner=bench.runner,
        database=ms.database.MemoryDatabase(),
        cost_model=model,
        task_scheduler=scheduler,
        strategy=ms.search_strategy.EvolutionarySearch(population_size=24, init_min_unmeasured=4, genetic_num_iters=1),
        num_tuning_cores=1,
        seed=1,
    )
    assert len(database.get_all_tuning_records()) == sum(turn.trials for turn in scheduler.turns) == 16
    assert model.families() == {"op:dense": ("main",)}
