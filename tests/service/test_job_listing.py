from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from kintune.core.report import FastestBaseline
from kintune.records.database import Database
from kintune.service.access import Scope, Visitor
from kintune.service.database import open_database
from kintune.service.job_listing import SORTED_BY, BestResult, JobFilter, JobListing, ListedJob
from kintune.service.job_repository import JobRepository, gain_columns
from kintune.service.job_request import JobRequest
from kintune.service.job_status import JobStatus
from kintune.service.model_store import ModelStore
from tests.support.service_users import visitor


@pytest.fixture
def listing(database: Database, anna: Visitor, boris: Visitor) -> JobListing:
    """Three jobs of anna's, one of which is done, and one of boris's."""
    jobs, models = JobRepository(database), ModelStore(database)
    names = ("resnet50", "bert_base", "mobilenet 100%")
    numbers = [models.add(anna.user, name, f"{at:064x}", 5, 100.0, None).id for at, name in enumerate(names)]
    made = [
        jobs.submit(anna, number, JobRequest(minutes=2.0, device=device), 1000.0 + at)[0]
        for at, (number, device) in enumerate(zip(numbers, ("cpu", "gpu", "cpu"), strict=True))
    ]
    for at, (job, ms) in enumerate(zip(made[:2], (1.5, 3.0), strict=True)):
        gain = gain_columns(ms, FastestBaseline("onnxruntime", 2.0, ms / 2.0))
        jobs.step(job.id, JobStatus.CHECKING, "", 1010.0)
        jobs.step(job.id, JobStatus.TUNING, "", 1020.0, **gain)
        if at == 0:
            jobs.step(job.id, JobStatus.DONE, "", 1100.0, **gain)
    theirs = models.add(boris.user, "secret", "f" * 64, 5, 100.0, None).id
    jobs.submit(boris, theirs, JobRequest(minutes=9.0), 1500.0)
    return JobListing(database)


def names(listing: JobListing, visitor: Visitor, **wanted: object) -> list[str]:
    return [each.model for each in listing.find(visitor, JobFilter(**wanted))[0]]  # type: ignore[arg-type]


def test_jobs_are_listed_newest_first_and_in_pages(listing: JobListing, anna: Visitor) -> None:
    found, total = listing.find(anna, JobFilter(), offset=1, limit=1)
    assert ([each.model for each in found], total) == (["bert_base"], 3)
    assert found[0].owner == "anna"
    assert found[0].job.fastest_baseline == FastestBaseline("onnxruntime", 2.0, 1.5)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({"text": "RES"}, ["resnet50"]),
        ({"text": "base gpu"}, ["bert_base"]),
        ({"text": "net_1"}, ["mobilenet_100"]),
        ({"text": "ne_50"}, []),
        ({"device": "cpu"}, ["mobilenet_100", "resnet50"]),
        ({"states": frozenset({JobStatus.DONE})}, ["resnet50"]),
        ({"sort": "model", "descending": False}, ["bert_base", "mobilenet_100", "resnet50"]),
        ({"sort": "gain", "descending": False}, ["resnet50", "bert_base", "mobilenet_100"]),
        ({"sort": "gain"}, ["bert_base", "resnet50", "mobilenet_100"]),
        ({"everybody": True}, ["mobilenet_100", "bert_base", "resnet50"]),
    ],
)
def test_jobs_are_searched_filtered_and_sorted(
    listing: JobListing, anna: Visitor, wanted: dict[str, object], expected: list[str]
) -> None:
    assert names(listing, anna, **wanted) == expected


@pytest.mark.parametrize("sort", SORTED_BY)
def test_every_column_sorts(listing: JobListing, anna: Visitor, sort: str) -> None:
    assert len(names(listing, anna, sort=sort)) == 3


def test_the_best_results_of_models_are_found_at_once(database: Database, anna: Visitor, boris: Visitor) -> None:
    jobs, models = JobRepository(database), ModelStore(database)
    fast, untimed, open_one = (models.add(anna.user, f"m{at}", f"{at:064x}", 5, 100.0, None).id for at in range(3))

    def done(visitor: Visitor, model: int, ms: float | None) -> str:
        job = jobs.submit(visitor, model, JobRequest(minutes=2.0), 1000.0)[0].id
        jobs.step(job, JobStatus.CHECKING, "", 1010.0)
        gain = gain_columns(ms, None if ms is None else FastestBaseline("onnxruntime", 2.0, ms / 2.0))
        return jobs.step(job, JobStatus.DONE, "", 1100.0, **gain).id

    _, best, _ = (done(anna, fast, ms) for ms in (3.0, 1.5, None))
    other = done(anna, untimed, None)
    done(boris, fast, 0.5)
    jobs.submit(anna, open_one, JobRequest(minutes=2.0), 1000.0)
    assert JobListing(database).best(anna, [fast, untimed, open_one]) == {
        fast: BestResult(best, 1.5, FastestBaseline("onnxruntime", 2.0, 0.75), 3),
        untimed: BestResult(other, None, None, 1),
    }


def test_an_admin_sees_everybodys(listing: JobListing, database: Database) -> None:
    root = visitor(database, "root", Scope.ADMIN)
    assert names(listing, root) == []
    assert "secret" in names(listing, root, everybody=True)


def test_jobs_that_were_answered_at_once_do_not_count_as_past(
    listing: JobListing, anna: Visitor, database: Database
) -> None:
    jobs, (first, *_) = JobRepository(database), listing.find(anna, JobFilter(text="resnet"))[0]
    job, _ = jobs.submit(anna, first.job.model, JobRequest(minutes=2.0, device="cpu"), 2000.0)
    jobs.step(job.id, JobStatus.CHECKING, "", 2001.0)
    jobs.step(job.id, JobStatus.DONE, "", 2001.1, **gain_columns(1.5, FastestBaseline("onnxruntime", 2.0, 0.75)))
    assert listing.past("cpu").seconds == (90.0,)


def test_past_jobs_and_those_ahead_are_counted(listing: JobListing) -> None:
    past = listing.past("cpu")
    assert (past.seconds, past.shares) == ((90.0,), (0.75,))
    assert listing.past("gpu").seconds == ()
    assert listing.minutes_ahead() == (3, 13.0)
    assert [each.model for each in listing.waiting()] == ["mobilenet_100", "secret"]


def test_small_letters_find_capital_ones_of_every_alphabet(tmp_path: Path) -> None:
    with closing(open_database(str(tmp_path / "service.sqlite"))) as database:
        cora = visitor(database, "cora")
        model = ModelStore(database).add(cora.user, "ÜBERSETZER-ЖУК", "a" * 64, 5, 100.0, None).id
        JobRepository(database).submit(cora, model, JobRequest(), 1000.0)
        for text in ("übersetzer", "Über", "жук"):
            assert names(JobListing(database), cora, text=text) == ["ÜBERSETZER-ЖУК"]


def test_lists_are_read_on_where_they_ended(listing: JobListing, database: Database, boris: Visitor) -> None:
    repository, model = JobRepository(database), ModelStore(database).page(boris)[0].id
    for number in range(6):
        repository.submit(boris, model, JobRequest(minutes=1.0), 2000.0 + number // 2)
    seen: list[ListedJob] = []
    before = None
    while page := listing.page(boris, JobFilter(sort="model"), before=before, limit=3):
        seen += page
        before = (page[-1].job.created, page[-1].job.id)
    assert len({each.job.id for each in seen}) == len(seen) == 7
    assert [each.job.created for each in seen] == sorted((each.job.created for each in seen), reverse=True)
    assert {(each.model, each.owner) for each in seen} == {("secret", "boris")}


def test_pages_have_only_what_is_asked_for(listing: JobListing, database: Database, anna: Visitor) -> None:
    def found(visitor: Visitor, **wanted: object) -> list[str]:
        return [each.model for each in listing.page(visitor, JobFilter(**wanted))]  # type: ignore[arg-type]

    assert found(anna, text="bert") == found(anna, device="gpu") == ["bert_base"]
    assert found(anna, states=frozenset({JobStatus.DONE})) == ["resnet50"]
    assert "secret" not in found(anna, everybody=True)
    assert "secret" in found(visitor(database, "root", Scope.ADMIN), everybody=True)


def test_jobs_that_ran_lately_are_found_whoever_they_belong_to(listing: JobListing) -> None:
    assert [each.model for each in listing.ran(1100.0)] == ["resnet50", "bert_base"]  # the other ones are queued
    assert [each.model for each in listing.ran(1101.0)] == ["bert_base"]
