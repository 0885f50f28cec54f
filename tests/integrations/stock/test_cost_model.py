from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kintune.errors import InputError

pytestmark = pytest.mark.tvm


@pytest.fixture
def measured(task: Any) -> Any:
    """Some candidates of a task with run times: (context, candidates, results)."""
    from tvm.s_tir import Schedule, Trace
    from tvm.s_tir import meta_schedule as ms

    def make(kind: str, rows: int, count: int = 12) -> Any:
        context = task(kind, rows)
        design = context.generate_design_space()[0]
        candidates, results = [], []
        for number in range(count):
            schedule = Schedule(context.mod, seed=number + 1, debug_mask=0)
            Trace(design.trace.insts, {}).apply_to_schedule(schedule, remove_postproc=False)
            candidates.append(ms.MeasureCandidate(schedule, []))
            failed = number == 0
            results.append(ms.runner.RunnerResult(None if failed else [1e-6 * (number + 1)], "x" if failed else None))
        return context, candidates, results

    return make


@pytest.mark.parametrize(("algorithm", "count"), [("op", 2), ("hash", 2), ("ind", 3), ("none", 1)])
def test_each_family_has_a_model_of_its_own(measured: Any, algorithm: str, count: int) -> None:
    from kintune.integrations.stock import FamilyCostModel

    model = FamilyCostModel(algorithm, warmup_samples=12, threads=1)
    data = [measured("matmul", 16), measured("matmul", 32), measured("sum", 64)]
    for context, candidates, results in data:
        assert not model.is_ready(context) or algorithm == "none" or model.family(context) == model.family(data[0][0])
        model.update(context, candidates, results)
        assert model.is_ready(context)
    assert len(model.families()) == count
    assert sorted(name for names in model.families().values() for name in names) == [
        "fused_matmul_relu16",
        "fused_matmul_relu32",
        "sum64",
    ]


def test_a_family_learns_from_its_own_samples_alone(measured: Any) -> None:
    from kintune.integrations.stock import FamilyCostModel

    context, candidates, results = measured("matmul", 16)
    alone, among = (FamilyCostModel("op", warmup_samples=12, threads=1) for _ in range(2))
    for model in (alone, among):
        model.update(context, candidates, results)
    among.update(*measured("sum", 64))
    assert np.array_equal(alone.predict(context, candidates), among.predict(context, candidates))
    scores = alone.predict(context, candidates)
    assert np.argmax(scores) == 1
    assert scores[0] < scores[1]


def test_one_family_is_the_stock_model(measured: Any) -> None:
    from tvm.s_tir import meta_schedule as ms

    from kintune.integrations.stock import FamilyCostModel

    ours, stock = (
        FamilyCostModel("none", warmup_samples=20, threads=1),
        ms.cost_model.XGBModel(num_warmup_samples=20, num_tuning_cores=1),
    )
    data = [measured("matmul", 16), measured("sum", 64)]
    for each in data:
        ours.update(*each)
        stock.update(*each)
    for context, candidates, _ in data:
        assert np.array_equal(ours.predict(context, candidates), stock.predict(context, candidates))


def test_guesses_before_that_follow_the_seed(measured: Any) -> None:
    from kintune.integrations.stock import FamilyCostModel

    context, candidates, _ = measured("matmul", 16)
    guesses = [FamilyCostModel(seed=seed).predict(context, candidates) for seed in (1, 1, 2)]
    assert np.array_equal(guesses[0], guesses[1])
    assert not np.array_equal(guesses[0], guesses[2])
    assert guesses[0].shape == (12,)


def test_what_was_saved_is_loaded(measured: Any, tmp_path: Path) -> None:
    from kintune.integrations.stock import FamilyCostModel

    path = tmp_path / "model"
    data = [measured("matmul", 16), measured("matmul", 32), measured("sum", 64)]
    model = FamilyCostModel("op", warmup_samples=12, threads=1)
    for each in data:
        model.update(*each)
    model.save(str(path))
    assert list(tmp_path.iterdir()) == [path]
    again = FamilyCostModel("op", warmup_samples=12, threads=1)
    again.update(*measured("matmul", 48))
    again.load(str(path))
    assert again.families() == model.families()
    for context, candidates, _ in data:
        assert np.array_equal(again.predict(context, candidates), model.predict(context, candidates))
    further = measured("matmul", 24)
    for each in (model, again):
        each.update(*further)
    assert np.array_equal(model.predict(*further[:2]), again.predict(*further[:2]))


def test_samples_are_worth_something_to_another_algorithm(measured: Any, tmp_path: Path) -> None:
    from kintune.integrations.stock import FamilyCostModel

    data = [measured("matmul", 16), measured("sum", 64)]
    one, each = (
        FamilyCostModel("none", warmup_samples=12, threads=1),
        FamilyCostModel("ind", warmup_samples=12, threads=1),
    )
    for sample in data:
        one.update(*sample)
        each.update(*sample)
    one.save(tmp_path / "model")
    loaded = FamilyCostModel("ind", warmup_samples=12, threads=1)
    loaded.load(tmp_path / "model")
    for context, candidates, _ in data:
        assert np.array_equal(loaded.predict(context, candidates), each.predict(context, candidates))


class Splitting:
    """All tasks are one family until `rows` are known, and then each is one of its own."""

    dynamic = True
    rows = 24

    def __init__(self) -> None:
        self.seen: list[list[int]] = []

    def group(self, evidence: Any, previous: Any) -> dict[str, str]:
        from kintune.search.training_rows import STORES

        self.seen.append([len(samples.labels) for samples in evidence])
        assert all(samples.features.shape == (len(samples.labels), STORES) for samples in evidence)
        for samples in evidence:
            if len(samples.labels):
                assert samples.labels.max() == 1.0
                assert samples.labels[0] == 0.0  # the first of `measured` failed
        if sum(self.seen[-1]) < self.rows:
            return {samples.subject.workload: "all" for samples in evidence}
        return {samples.subject.workload: samples.subject.workload[:8] for samples in evidence}


def test_samples_move_with_their_tasks(measured: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kintune.integrations.stock import FamilyCostModel

    monkeypatch.setattr("kintune.integrations.stock.cost_model.families", lambda *_, **__: Splitting())
    model = FamilyCostModel(warmup_samples=12, threads=1)
    first, second = measured("matmul", 16), measured("matmul", 32)
    model.update(*first)
    assert list(model.families()) == ["all"]
    assert model.family(second[0]) == "all"
    assert model.is_ready(second[0])
    model.update(*second)
    assert len(model.families()) == 2
    monkeypatch.undo()
    for context, candidates, results in (first, second):
        alone = FamilyCostModel("ind", warmup_samples=12, threads=1)
        alone.update(context, candidates, results)
        assert np.array_equal(model.predict(context, candidates), alone.predict(context, candidates))
    model.save(tmp_path / "model")
    monkeypatch.setattr("kintune.integrations.stock.cost_model.families", lambda *_, **__: Splitting())
    again = FamilyCostModel(warmup_samples=12, threads=1)
    again.load(tmp_path / "model")
    assert again.families() == model.families()
    assert np.array_equal(model.predict(*first[:2]), again.predict(*first[:2]))


def test_damage_is_refused_and_changes_nothing(measured: Any, tmp_path: Path) -> None:
    from tvm.s_tir import meta_schedule as ms

    from kintune.integrations.stock import FamilyCostModel

    model = FamilyCostModel(warmup_samples=12, threads=1)
    model.update(*measured("matmul", 16))
    path = tmp_path / "model"
    model.save(path)
    whole = path.read_bytes()
    damaged = {
        "empty": b"",
        "cut": whole[: len(whole) // 2],
        "flipped": whole[:200] + bytes(b ^ 255 for b in whole[200:260]) + whole[260:],
        "text": b"not a model",
    }
    for content in damaged.values():
        path.write_bytes(content)
        with pytest.raises(InputError, match="no file of family models, or a damaged one"):
            model.load(path)
    stock = ms.cost_model.XGBModel()
    stock.save(str(path))
    with pytest.raises(InputError, match="no file of family models"):
        model.load(path)
    with pytest.raises(InputError, match="does not exist"):
        model.load(tmp_path / "nowhere")
    with pytest.raises(InputError, match="there is no directory"):
        model.save(tmp_path / "nowhere" / "model")
    assert list(model.families()) == ["op:dense"]


def test_trees_that_are_no_model_are_refused(measured: Any) -> None:
    from kintune.integrations.stock.family_model import FamilyModel, FamilyModelSettings

    with pytest.raises(InputError, match="the trees of a family model are damaged"):
        FamilyModel(FamilyModelSettings(12, 0, 1)).adopt(b"rubbish")


def test_another_compilers_features_are_refused(measured: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kintune.integrations.stock import FamilyCostModel

    model = FamilyCostModel(threads=1)
    model.update(*measured("matmul", 16))
    with monkeypatch.context() as patch:
        patch.setattr("tvm.__version__", "0.1")
        model.save(tmp_path / "model")
    with pytest.raises(InputError, match=r"written with TVM 0\.1"):
        model.load(tmp_path / "model")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"families": "best"}, "unknown family algorithm 'best'; use one of: op, hash, ind, none"),
        ({"warmup_samples": 0}, "warmup_samples=0"),
        ({"threads": 0}, "threads=0"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments: dict[str, Any], message: str) -> None:
    from kintune.integrations.stock import FamilyCostModel

    with pytest.raises(InputError, match=message):
        FamilyCostModel(**arguments)
