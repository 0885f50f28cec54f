from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kintune.core.report import StopReason
from kintune.errors import InputError
from kintune.records import Store
from kintune_lab.bench.experiments.tune import EXPERIMENT
from kintune_lab.bench.spec import BenchSpec, read_bench_spec
from kintune_lab.experiment.experiment import CellProgress
from kintune_lab.experiment.tables import check_tables
from kintune_lab.spec_document import SpecError
from tests.support.reports import example_report

if TYPE_CHECKING:
    from tests.conftest import FakeFront

HEAD = 'name = "t"\nexperiment = "tune"\n[matrix]\nmodel = "zoo:mobilenet_v1_0.5"\n'

pytestmark = pytest.mark.usefixtures("in_an_empty_folder")


def spec_of(text: str) -> BenchSpec:
    Path("t.toml").write_text(HEAD + text)
    return read_bench_spec("t.toml")


def work(name: str = "work") -> Path:
    place = Path(name).absolute()
    place.mkdir()
    return place


def show(progress: CellProgress) -> None:
    """Look away."""


def test_every_option_reaches_the_tuner(fake_front: FakeFront) -> None:
    (cell,) = spec_of(
        'seed = 7\ntrials = 64\nminutes = 2\nuntil = "4"\ntarget = "llvm"\nthreads = 1\nfamilies = "hash"\n'
        'foresee = "published"\ncarry = false\nrules = false\nsurvey = "4, 8"\nbudget = "balanced"\nround_size = 8\n'
        "foresee_size = 4\nwidth = 2\ncompare = false\n"
    ).cells
    EXPERIMENT.run(cell, work(), show)
    (request,) = fake_front.requests
    options, strategy = request.options, request.options.strategy
    assert (request.model.source, request.target, request.threads) == ("mobilenet_v1_0.5", "llvm", 1)
    assert (options.seed, options.trials, options.minutes, options.until) == (7, 64, 2.0, "4")
    assert options.compare == ()
    assert (strategy.families, strategy.foresee, strategy.budget) == ("hash", "published", "balanced")
    assert (strategy.carry, strategy.rules, strategy.survey) == (False, False, (4, 8))
    assert (strategy.round_size, strategy.foresee_size, strategy.width) == (8, 4, 2)


def test_what_is_not_set_is_as_in_a_run_by_hand(fake_front: FakeFront) -> None:
    from kintune.core.config import Options

    (cell,) = spec_of("trials = 64\n").cells
    EXPERIMENT.run(cell, work(), show)
    assert fake_front.requests[0].options == Options(trials=64)
    assert (fake_front.requests[0].target, fake_front.requests[0].threads) == ("native", None)


def test_each_cell_has_records_of_its_own(fake_front: FakeFront) -> None:
    for index, cell in enumerate(spec_of("trials = 64\nseed = [0, 1]\n").cells):
        EXPERIMENT.run(cell, work(str(index)), show)
    places = [request.records for request in fake_front.requests]
    assert places == [str(Path("0/records.sqlite").absolute()), str(Path("1/records.sqlite").absolute())]


def test_a_warm_cell_starts_from_a_copy_of_what_is_known(fake_front: FakeFront) -> None:
    with Store.open("known.sqlite") as store:
        counts = store.counts()
    (cell,) = spec_of('trials = 64\nrecords = "known.sqlite"\n').cells
    EXPERIMENT.run(cell, work(), show)
    with Store.open(fake_front.requests[0].records, create=False) as store:
        assert store.counts() == counts
    assert fake_front.requests[0].records != "known.sqlite"


def test_records_that_are_none_are_refused_beforehand() -> None:
    Path("known.sqlite").write_text("no database, but long enough to be read as one" * 100)
    with pytest.raises(SpecError, match=r't\.toml:6: records = "known\.sqlite": cannot be used as records'):
        spec_of('trials = 64\nrecords = "known.sqlite"\n')


def test_records_may_be_called_anything() -> None:
    with Store.open("what is known?.sqlite"):
        pass
    assert spec_of('trials = 64\nrecords = "what is known?.sqlite"\n').cells


def test_records_that_are_none_any_more_fail_the_cell(fake_front: FakeFront) -> None:
    with Store.open("known.sqlite"):
        pass
    (cell,) = spec_of('trials = 64\nrecords = "known.sqlite"\n').cells
    Path("known.sqlite").write_text("no database, but long enough to be read as one" * 100)
    with pytest.raises(InputError, match=r"known.sqlite: cannot be copied as records"):
        EXPERIMENT.run(cell, work(), show)
    assert fake_front.requests == []


def test_what_a_run_reports_is_observed(fake_front: FakeFront) -> None:
    (cell,) = spec_of("trials = 64\n").cells
    tables = EXPERIMENT.run(cell, work(), show)
    check_tables(tables)
    (result,) = tables["results"]
    assert (result["measured"], result["tuned_ms"], result["gain"], result["reason"]) == (1000, 15.0, 2.0, "trials")
    assert result["onnxruntime_ms"] == 16.2
    assert [row["estimate_ms"] for row in tables["curve"]] == [30.0, 18.5, 15.0]
    assert {row["stage"]: row["seconds"] for row in tables["stages"]}["build"] == 400.0
    assert [row["failures"] for row in tables["subgraphs"]] == [2, 5]
    left = json.loads(Path("work/report.json").read_text())
    assert (left["trials"], left["output"]) == (1000, "resnet18.kt")
    assert not Path("work/executable").exists()


def test_progress_says_how_far_it_is(fake_front: FakeFront) -> None:
    seen: list[CellProgress] = []
    (cell,) = spec_of("trials = 64\n").cells
    EXPERIMENT.run(cell, work(), seen.append)
    assert seen[1] == CellProgress("profile", 0.002, 340.0)


def test_a_search_that_was_interrupted_ends_the_bench(fake_front: FakeFront) -> None:
    fake_front.outcome = example_report(reason=StopReason.INTERRUPTED)
    (cell,) = spec_of("trials = 64\n").cells
    with pytest.raises(KeyboardInterrupt):
        EXPERIMENT.run(cell, work(), show)


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("seed = 1\n", 3, "nothing ends the search; set trials, minutes or until in [matrix]"),
        ('trials = 4\nfamilies = "friends"\n', 6, 'families = "friends": must be one of op, hash'),
        ('trials = 4\nforesee = "always"\n', 6, 'foresee = "always": must be one of none, published, guarded'),
        ("trials = 4\nthreads = 4096\n", 6, "threads = 4096: threads=4096: this process may use"),
        ("trials = 0\n", 5, "trials = 0: must be 1 or more"),
        ("trials = 4\nseed = -1\n", 6, "seed = -1: must be 0 or more"),
        ('trials = 4\n[[method]]\nname = "stock"\n', 7, "there is no method 'stock'; the experiment 'tune' has none"),
    ],
)  # fmt: skip
def test_what_no_search_can_do_is_refused(text: str, line: int, problem: str) -> None:
    with pytest.raises(SpecError) as caught:
        spec_of(text)
    assert str(caught.value).startswith(f"t.toml:{line}: {problem}")


def test_time_is_known_where_it_is_the_limit() -> None:
    cells = spec_of("minutes = 2\n").cells + spec_of("trials = 64\nminutes = 2\n").cells
    assert [EXPERIMENT.seconds(cell, {}) for cell in cells] == [120.0, None]


def test_the_report_shows_what_varies(fake_front: FakeFront) -> None:
    cells = spec_of("trials = [64, 128]\nseed = [0, 1]\n").cells
    tables: dict[str, list[dict[str, object]]] = {}
    from kintune_lab.experiment.tables import joined

    for index, cell in enumerate(cells):
        for name, rows in EXPERIMENT.run(cell, work(str(index)), show).items():
            tables.setdefault(name, []).extend(joined(rows, cell.id, cell.values))  # type: ignore[arg-type]
    reached, curves, stages = EXPERIMENT.report(tables)  # type: ignore[arg-type]
    assert [row[:2] for row in reached.grids[0].rows] == [
        ("mobilenet_v1_0.5, trials 64", "2"), ("mobilenet_v1_0.5, trials 128", "2")
    ]  # fmt: skip
    assert [chart.name for chart in curves.charts] == [
        "latency-over-time-mobilenet_v1_0.5", "latency-over-trials-mobilenet_v1_0.5"
    ]  # fmt: skip
    assert [series.label for series in curves.charts[0].series] == ["trials 64", "trials 128"]  # type: ignore[union-attr]
    assert list(stages.charts[0].groups) == ["trials 64", "trials 128"]  # type: ignore[union-attr]
    assert EXPERIMENT.report({}) == []
