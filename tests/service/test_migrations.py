"""A database of an earlier version is read as it was meant."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from importlib.resources import as_file, files
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from kintune.core.report import FastestBaseline, ProgressReport
from kintune.service.access import Visitor
from kintune.service.database import open_database
from kintune.service.job_listing import JobFilter, JobListing
from kintune.service.job_repository import JobRepository
from kintune.service.job_request import JobRequest
from kintune.service.job_status import JobStatus
from kintune.service.model_store import ModelStore
from kintune.service.users import Users
from tests.support.service_users import visitor


def downgrade(location: Path, revision: str) -> None:
    """Bring a database to an earlier revision."""
    engine = sa.create_engine(f"sqlite:///{location}")
    with engine.begin() as connection, as_file(files("kintune.service") / "migrations") as scripts:
        config = Config()
        config.set_main_option("script_location", str(scripts))
        config.attributes["connection"] = connection
        command.downgrade(config, revision)
    engine.dispose()


@pytest.mark.parametrize(("until", "target_ms"), [("8.5", 8.5), (None, None), ("onnxruntime*0.8", None)])
def test_milliseconds_of_earlier_jobs_are_targets(tmp_path: Path, until: str | None, target_ms: float | None) -> None:
    location = tmp_path / "service.sqlite"
    with closing(open_database(str(location))) as database:
        anna: Visitor = visitor(database, "anna")
        model = ModelStore(database).add(anna.user, "net.onnx", "0" * 64, 5, 100.0, None).id
        job, _ = JobRepository(database).submit(anna, model, JobRequest(until=until, minutes=2.0), 1000.0)
    downgrade(location, "0002")
    engine = sa.create_engine(f"sqlite:///{location}")
    with engine.begin() as connection:
        wanted = json.loads(connection.scalar(sa.text("SELECT wanted FROM service_jobs")) or "")
    engine.dispose()
    assert wanted["target_ms"] == target_ms
    assert "until" not in wanted
    with closing(open_database(str(location))) as database:
        again = JobRepository(database).get(anna, job.id).wanted
    assert again == JobRequest(until=None if target_ms is None else until, minutes=2.0)


def test_earlier_jobs_have_the_gain_of_their_last_progress(tmp_path: Path) -> None:
    location = tmp_path / "service.sqlite"
    fastest = FastestBaseline("onnxruntime", 2.0, 0.75)
    with closing(open_database(str(location))) as database:
        anna: Visitor = visitor(database, "anna")
        model = ModelStore(database).add(anna.user, "net.onnx", "0" * 64, 5, 100.0, None).id
        jobs = JobRepository(database)
        silent, _ = jobs.submit(anna, model, JobRequest(minutes=2.0, device="gpu"), 1000.0)
        told, _ = jobs.submit(anna, model, JobRequest(minutes=2.0), 1000.0)
        jobs.progressed(told.id, ProgressReport("profile", best_ms=1.5, fastest_baseline=fastest))
    downgrade(location, "0004")
    with closing(open_database(str(location))) as database:
        jobs = JobRepository(database)
        assert (jobs.get(anna, told.id).latency_ms, jobs.get(anna, told.id).fastest_baseline) == (1.5, fastest)
        assert jobs.get(anna, silent.id).fastest_baseline is None
        (found,), _ = JobListing(database).find(anna, JobFilter(device="gpu"))
        assert found.job.id == silent.id


def test_the_jobs_of_models_are_indexed(tmp_path: Path) -> None:
    location = tmp_path / "service.sqlite"
    open_database(str(location)).close()
    index = "ix_service_jobs_owner_model_state owner model state"
    assert index in indexes(location)
    downgrade(location, "0005")
    assert index not in indexes(location)
    open_database(str(location)).close()
    assert index in indexes(location)


def test_the_runs_of_earlier_jobs_stay_private(tmp_path: Path) -> None:
    location = tmp_path / "service.sqlite"
    with closing(open_database(str(location))) as database:
        anna, boris = (visitor(database, name) for name in ("anna", "boris"))
        model = ModelStore(database).add(anna.user, "net.onnx", "0" * 64, 5, 100.0, None).id
        jobs = JobRepository(database)
        job, _ = jobs.submit(anna, model, JobRequest(minutes=2.0), 1000.0)
        jobs.step(job.id, JobStatus.CHECKING, "", 1000.0, run_id="r1")
    downgrade(location, "0006")
    with closing(open_database(str(location))) as database:
        assert JobRepository(database).hidden_from(boris.user) == {"r1"}


def test_earlier_jobs_have_all_their_files(tmp_path: Path) -> None:
    location = tmp_path / "service.sqlite"
    with closing(open_database(str(location))) as database:
        anna: Visitor = visitor(database, "anna")
        model = ModelStore(database).add(anna.user, "net.onnx", "0" * 64, 5, 100.0, None).id
        job, _ = JobRepository(database).submit(anna, model, JobRequest(minutes=2.0), 1000.0)
        failed = JobRepository(database).step(job.id, JobStatus.FAILED, "", 1000.0, log="1" * 64)
    downgrade(location, "0007")
    assert "files_removed DOUBLE" not in tables(location)["service_jobs"]
    with closing(open_database(str(location))) as database:
        assert JobRepository(database).get(anna, job.id) == failed
    assert "files_removed DOUBLE" in tables(location)["service_jobs"]


def test_earlier_results_count_for_nothing(tmp_path: Path) -> None:
    location = tmp_path / "service.sqlite"
    with closing(open_database(str(location))) as database:
        anna: Visitor = visitor(database, "anna")
        model = ModelStore(database).add(anna.user, "net.onnx", "0" * 64, 5, 100.0, None).id
        job, _ = JobRepository(database).submit(anna, model, JobRequest(minutes=2.0), 1000.0)
        JobRepository(database).step(job.id, JobStatus.CHECKING, "", 1000.0)
        JobRepository(database).step(job.id, JobStatus.DONE, "", 1000.0, executable="1" * 64, executable_size=7)
        assert ModelStore(database).storage(anna.user).results == 7
    downgrade(location, "0008")
    with closing(open_database(str(location))) as database:
        assert JobRepository(database).get(anna, job.id).executable == "1" * 64
        assert ModelStore(database).storage(anna.user).results == 0


def test_a_service_of_the_version_before_is_brought_up_to_date(tmp_path: Path) -> None:
    """Its database lies as text in the repository, as that version has written it."""
    location = tmp_path / "service.sqlite"
    script = Path(__file__).parents[1] / "support" / "old_databases" / "service_0002.sql"
    with closing(sqlite3.connect(location)) as connection:
        connection.executescript(script.read_text())
    with closing(open_database(str(location))) as database:
        (user,) = [user for user in Users(database).users() if user.name == "anna"]
        with database.snapshot() as connection:
            (job,) = connection.execute(sa.text("SELECT owner, wanted FROM service_jobs")).all()
    assert job.owner == user.id
    assert json.loads(job.wanted)["until"] == "8.5"
    open_database(str(tmp_path / "new.sqlite")).close()
    assert tables(location) == tables(tmp_path / "new.sqlite")
    assert indexes(location) == indexes(tmp_path / "new.sqlite")


def tables(location: Path) -> dict[str, list[str]]:
    """Names and types of the columns of all tables."""
    engine = sa.create_engine(f"sqlite:///{location}")
    seen = sa.inspect(engine)
    found = {name: [f"{c['name']} {c['type']}" for c in seen.get_columns(name)] for name in seen.get_table_names()}
    engine.dispose()
    return found


def indexes(location: Path) -> list[str]:
    """Names and columns of the indexes of all tables."""
    engine = sa.create_engine(f"sqlite:///{location}")
    seen = sa.inspect(engine)
    found = [
        " ".join(map(str, (each["name"], *each["column_names"])))
        for name in seen.get_table_names()
        for each in seen.get_indexes(name)
    ]
    engine.dispose()
    return sorted(found)
