from __future__ import annotations

import pytest

from kintune.errors import InputError
from kintune.records.database import Database
from kintune.service.access import Forbidden, NotFound, Quota, Visitor
from kintune.service.job_repository import JobRepository
from kintune.service.job_request import JobRequest
from kintune.service.job_status import JobStatus
from kintune.service.model_store import INPUTS, MODEL, ModelStore, Storage
from tests.support.service_users import visitor

MB = 1 << 20


@pytest.fixture
def cora(database: Database) -> Visitor:
    return visitor(database, "cora", quota=Quota(storage_mb=10))


def test_all_uploads_of_a_user_together_have_a_limit(database: Database, cora: Visitor, boris: Visitor) -> None:
    store = ModelStore(database)
    store.add(cora.user, "one", "1" * 64, 6 * MB, 100.0, None)
    refused = "your uploads and results take 6.0 of the 10 MB that you may keep"
    with pytest.raises(Forbidden, match=refused):
        store.add(cora.user, "two", "2" * 64, 4 * MB + 1, 100.0, None, INPUTS)
    store.add(cora.user, "two", "2" * 64, 4 * MB, 100.0, None, INPUTS)
    assert store.storage(cora.user) == Storage(uploads=10 * MB, most=10 * MB, largest=6 * MB)
    store.add(boris.user, "three", "3" * 64, 100 * MB, 100.0, None)


def test_results_count_once_until_they_are_deleted(database: Database, cora: Visitor, boris: Visitor) -> None:
    store, jobs = ModelStore(database), JobRepository(database)
    model = store.add(cora.user, "one", "1" * 64, 6 * MB, 100.0, None).id
    done = []
    for owner, executable, size in ((cora, "a", 3 * MB), (cora, "a", 3 * MB), (cora, "b", None), (boris, "c", 99 * MB)):
        job = jobs.submit(owner, model, JobRequest(minutes=1.0), 100.0)[0]
        jobs.step(job.id, JobStatus.CHECKING, "", 101.0)
        files = {"executable": executable * 64, "executable_size": size}
        done.append(jobs.step(job.id, JobStatus.DONE, "", 102.0, **files))
    assert store.storage(cora.user) == Storage(6 * MB, 10 * MB, 6 * MB, results=3 * MB)
    refused = (
        "your uploads and results take 9.0 of the 10 MB that you may keep, and this one is too much; .*delete-files"
    )
    with pytest.raises(Forbidden, match=refused):
        store.add(cora.user, "two", "2" * 64, 2 * MB, 103.0, None)
    jobs.remove_files(done[0], 104.0)
    assert store.storage(cora.user).results == 3 * MB
    jobs.remove_files(done[1], 105.0)
    assert store.storage(cora.user).results == 0
    store.add(cora.user, "two", "2" * 64, 2 * MB, 106.0, None)


def test_what_is_deleted_leaves_room(database: Database, cora: Visitor) -> None:
    store = ModelStore(database)
    one = store.add(cora.user, "one", "1" * 64, 10 * MB, 100.0, None)
    store.add(cora.user, "again", "1" * 64, 10 * MB, 101.0, None)  # the same file takes no more
    store.delete(cora, one.id, 102.0)
    store.add(cora.user, "two", "2" * 64, 10 * MB, 103.0, None)
    with pytest.raises(Forbidden):
        store.add(cora.user, "one", "1" * 64, 10 * MB, 104.0, None)


def test_a_set_of_inputs_that_is_uploaded_as_a_model_stays_one(database: Database, cora: Visitor) -> None:
    store = ModelStore(database)
    inputs = store.add(cora.user, "x", "1" * 64, MB, 100.0, None, INPUTS)
    with pytest.raises(InputError, match=f"is your set of inputs {inputs.id}, and no model"):
        store.add(cora.user, "x", "1" * 64, MB, 101.0, 3701.0)
    assert store.get(cora, inputs.id, INPUTS).expires is None
    mistaken = store.add(cora.user, "y", "2" * 64, MB, 100.0, 3700.0)
    assert store.add(cora.user, "y", "2" * 64, MB, 101.0, None, INPUTS).id == mistaken.id


@pytest.mark.parametrize(("used", "largest", "longest"), [(0, 0, 10), (7, 6, 6), (7, 2, 3), (10, 4, 4), (12, 0, 0)])
def test_an_upload_is_as_long_as_what_is_left_or_what_is_stored(used: int, largest: int, longest: int) -> None:
    assert Storage(used, 10, largest).longest_upload == longest


def test_an_upload_is_found_by_its_file_and_its_owner(database: Database, cora: Visitor, boris: Visitor) -> None:
    store = ModelStore(database)
    inputs = store.add(cora.user, "x", "1" * 64, MB, 100.0, None, INPUTS)
    assert store.of_file(cora.user, "1" * 64) == inputs
    assert store.of_file(boris.user, "1" * 64) is None
    store.delete(cora, inputs.id, 101.0, INPUTS)
    found = store.of_file(cora.user, "1" * 64)
    assert found is not None
    assert (found.id, found.deleted) == (inputs.id, 101.0)


def test_an_upload_is_renewed_by_its_owner_until_it_is_deleted(
    database: Database, cora: Visitor, boris: Visitor
) -> None:
    store = ModelStore(database)
    model = store.add(cora.user, "one", "1" * 64, 10 * MB, 100.0, 200.0)
    renewed = store.renew(cora.user, "folder/two.onnx", "1" * 64, 300.0)
    assert (renewed.id, renewed.name, renewed.created, renewed.expires) == (model.id, "two", 100.0, 300.0)
    for owner, file, kind in ((boris.user, "1", MODEL), (cora.user, "1", INPUTS), (cora.user, "2", MODEL)):
        with pytest.raises(NotFound):
            store.renew(owner, "three", file * 64, None, kind)
    store.delete(cora, model.id, 102.0)
    with pytest.raises(NotFound, match="you have no model with this content; upload the file"):
        store.renew(cora.user, "three", "1" * 64, None)
    found = store.of_file(cora.user, "1" * 64)
    assert found is not None
    assert (found.name, found.expires) == ("two", 300.0)
