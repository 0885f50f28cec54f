from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np
import pytest

from kintune.core.model import ModelRef
from kintune.core.report import ProgressReport, RunReport, StopReason
from kintune.core.stage_results import Prepared
from kintune.core.version import FEATURES
from kintune.errors import InputError, KintuneError
from kintune.records import Store
from kintune.testing.records import add_workload, measurement, subgraph
from kintune.tuning.front.request import TuneRequest
from kintune_lab.experiment.experiment import CellProgress
from kintune_lab.pools import collect as module
from kintune_lab.pools.collect import check_origin, obtain_pool
from kintune_lab.pools.pool import load_pool
from tests.support.reports import example_progress, example_report

MODEL = "zoo:resnet18"
NAMES = ("conv", "dense")


class Collection:
    """Tuning that measures so many programs of each subgraph at once."""

    def __init__(self) -> None:
        self.requests: list[TuneRequest] = []
        self.yields = {"conv": 20, "dense": 20}
        self.reason = StopReason.TRIALS

    def tune(self, request: TuneRequest, show: Callable[[ProgressReport], None]) -> RunReport:
        self.requests.append(request)
        show(example_progress(trials=4))
        with Store.open(request.records) as store:
            for name in NAMES:
                workload = add_workload(store, name)
                for index in range(self.yields[name]):
                    features = np.array([index, 1.0], dtype="<f4").tobytes()
                    row = msgspec.structs.replace(measurement(workload, index, 10.0 + index), features=features)
                    store.measurements.add(msgspec.structs.replace(row, feature_version=FEATURES))
        Path(request.output).write_bytes(b"executable")
        return msgspec.structs.replace(example_report(), reason=self.reason)


@pytest.fixture
def collection(monkeypatch: pytest.MonkeyPatch) -> Collection:
    fake = Collection()

    @contextmanager
    def preparing(**_: object) -> Iterator[Callable[[ModelRef], Prepared]]:
        subgraphs = tuple(subgraph(name) for name in NAMES)
        yield lambda ref: Prepared(ref.name, "d" * 32, (), (), subgraphs, {}, ())

    monkeypatch.setattr("kintune.tuning.front.driver.tune", fake.tune)
    monkeypatch.setattr(module, "preparing", preparing)
    return fake


def obtain(path: Path, samples: int = 20, shown: list[CellProgress] | None = None) -> list[int]:
    show = (lambda _: None) if shown is None else shown.append
    pool = obtain_pool(MODEL, path, samples, seed=3, threads=1, show=show)
    return [len(measured) for measured in pool.subgraphs.values()]


def test_a_pool_is_collected_once_by_a_search_without_favourites(collection: Collection, tmp_path: Path) -> None:
    shown: list[CellProgress] = []
    assert obtain(tmp_path / "pool.npz", shown=shown) == [20, 20]
    (request,) = collection.requests
    strategy = request.options.strategy
    assert (request.options.trials, request.options.seed, request.threads) == (40, 3, 1)
    assert (strategy.budget, strategy.families, strategy.foresee) == ("balanced", "none", "none")
    assert (strategy.rules, strategy.carry, strategy.survey) == (False, False, ())
    assert shown[-1].done == 0.1
    assert obtain(tmp_path / "pool.npz") == [20, 20]
    assert len(collection.requests) == 1
    assert sorted(path.name for path in tmp_path.iterdir() if "sqlite" not in path.name) == ["pool.npz"]
    origin = load_pool(tmp_path / "pool.npz").origin
    assert (origin.model, origin.seed, origin.threads) == (MODEL, 3, 1)


def test_a_pool_that_was_measured_but_not_written_is_not_measured_again(collection: Collection, tmp_path: Path) -> None:
    obtain(tmp_path / "pool.npz")
    (tmp_path / "pool.npz").unlink()
    assert obtain(tmp_path / "pool.npz") == [20, 20]
    assert len(collection.requests) == 1


def test_more_samples_are_collected_on_top(collection: Collection, tmp_path: Path) -> None:
    obtain(tmp_path / "pool.npz")
    collection.yields = {"conv": 32, "dense": 32}
    assert obtain(tmp_path / "pool.npz", 32) == [32, 32]
    assert [request.options.trials for request in collection.requests] == [40, 24]


def test_a_space_with_few_programs_gives_all_it_has(collection: Collection, tmp_path: Path) -> None:
    collection.yields["dense"] = 5
    assert obtain(tmp_path / "pool.npz") == [20, 5]
    assert obtain(tmp_path / "pool.npz") == [20, 5]
    assert len(collection.requests) == 1


def test_an_interrupted_collection_is_no_pool(collection: Collection, tmp_path: Path) -> None:
    collection.reason = StopReason.INTERRUPTED
    with pytest.raises(KeyboardInterrupt):
        obtain(tmp_path / "pool.npz")
    assert not (tmp_path / "pool.npz").exists()


def test_a_subgraph_of_which_nothing_was_measured_is_named(collection: Collection, tmp_path: Path) -> None:
    collection.yields["dense"] = 0
    with pytest.raises(KintuneError, match="no candidate of dense was measured"):
        obtain(tmp_path / "pool.npz")


def test_a_pool_of_another_model_is_not_taken(collection: Collection, tmp_path: Path) -> None:
    obtain(tmp_path / "pool.npz")
    with pytest.raises(InputError, match="is a pool of zoo:resnet18, not of zoo:resnet50"):
        obtain_pool("zoo:resnet50", tmp_path / "pool.npz", 20, seed=0, threads=None, show=lambda _: None)


def test_a_pool_of_another_seed_or_other_threads_is_not_taken(collection: Collection, tmp_path: Path) -> None:
    path = tmp_path / "pool.npz"
    obtain(path)
    with pytest.raises(InputError, match=r"is a pool of seed 3, not of 4; .* leave pool away"):
        obtain_pool(MODEL, path, 20, seed=4, threads=1, show=lambda _: None)
    with pytest.raises(InputError, match="ran with 1 threads, not 2"):
        obtain_pool(MODEL, path, 20, seed=3, threads=2, show=lambda _: None)
    origin = load_pool(path).origin
    check_origin(path, origin, MODEL, 3, None)
    check_origin(path, msgspec.structs.replace(origin, threads=0), MODEL, 3, 2)  # of before that was noted


def test_a_pool_of_a_file_before_it_changed_is_not_taken(collection: Collection, tmp_path: Path) -> None:
    path = tmp_path / "pool.npz"

    def of(content: str) -> int:
        return obtain_pool(MODEL, path, 20, seed=3, threads=1, show=lambda _: None, content=content).least

    assert of("one") == of("one") == of("") == 20
    with pytest.raises(InputError, match=r"is a pool of zoo:resnet18 before it changed; name another file"):
        of("other")
    check_origin(path, msgspec.structs.replace(load_pool(path).origin, content=""), MODEL, 3, None, "other")
