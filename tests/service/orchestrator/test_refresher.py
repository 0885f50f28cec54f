from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from kintune.core.knowledge import TrainingConditions
from kintune.core.measurement_protocol import DeviceType
from kintune.records import Store
from kintune.service.orchestrator.refresher import Refresher
from kintune.transfer.refresh_job import RefreshSpec
from kintune.workers.engine.job_run import JobEnd, JobEnding, JobLaunch
from kintune.workers.engine.process import Anywhere, Command

TYPE = DeviceType("{}", "cpu", (), 1, "1 cold")


HERE, THERE = TrainingConditions(TYPE.digest, "c1", "f1"), TrainingConditions("another", "c1", "f1")


class Play:
    """A refresher after every third measurement, and what it has launched and complained of."""

    def __init__(self) -> None:
        self.launched: list[JobLaunch] = []
        self.complaints: list[str] = []
        self.refresher = Refresher(
            "records.sqlite",
            3,
            Command(("train",)),
            "local",
            self.launched.append,
            self.complaints.append,
        )


@pytest.fixture
def play() -> Play:
    return Play()


def test_models_are_refreshed_after_so_many_measurements(play: Play) -> None:
    for _ in range(2):
        play.refresher.measured(HERE)
    assert play.launched == []
    play.refresher.measured(HERE)
    (launch,) = play.launched
    assert play.refresher.owns(launch.job)
    assert msgspec.msgpack.decode(launch.spec, type=RefreshSpec).conditions == HERE


def test_each_type_of_devices_has_models_of_its_own(play: Play) -> None:
    for conditions in (HERE, THERE, HERE, THERE, THERE):
        play.refresher.measured(conditions)
    (launch,) = play.launched
    assert msgspec.msgpack.decode(launch.spec, type=RefreshSpec).conditions == THERE


def test_one_at_a_time(play: Play) -> None:
    for _ in range(9):
        play.refresher.measured(HERE)
    assert len(play.launched) == 1
    play.refresher.ended(JobEnd(JobEnding.FINISHED))
    play.refresher.measured(HERE)
    assert len(play.launched) == 2
    assert play.launched[0].job != play.launched[1].job


def test_one_that_fails_is_told_of_and_tried_again_later(play: Play) -> None:
    for _ in range(3):
        play.refresher.measured(HERE)
    play.refresher.ended(JobEnd(JobEnding.FAILED, cause="out of memory"))
    assert play.complaints == ["out of memory"]
    for _ in range(3):
        play.refresher.measured(HERE)
    assert len(play.launched) == 2


def test_a_process_elsewhere_gets_a_copy_of_the_records_which_goes_at_the_end(tmp_path: Path) -> None:
    records = tmp_path / "records.sqlite"
    Store.open(str(records)).close()
    launched: list[JobLaunch] = []
    aside: list[Callable[[], None]] = []
    refresher = Refresher(str(records), 1, Anywhere("train"), None, launched.append, pytest.fail, aside.append)
    refresher.measured(HERE)
    assert launched == []  # a large file takes long, and the engine must not wait
    refresher.measured(HERE)
    (copy_records,) = aside
    copy_records()
    (launch,) = launched
    (copy,) = launch.files
    assert msgspec.msgpack.decode(launch.spec, type=RefreshSpec).records == copy != str(records)
    Store.open(copy, create=False).close()
    refresher.ended(JobEnd(JobEnding.FINISHED))
    assert not Path(copy).exists()


def test_records_that_cannot_be_copied_cost_a_refresh_and_no_more(tmp_path: Path) -> None:
    complaints: list[str] = []
    refresher = Refresher(
        str(tmp_path / "gone/records"), 1, Anywhere("train"), None, pytest.fail, complaints.append, lambda act: act()
    )
    for _ in range(2):
        refresher.measured(HERE)
    assert len(complaints) == 2
    assert "cannot be copied for the nodes of the cluster" in complaints[0]


def test_a_copy_that_was_begun_and_not_finished_goes(tmp_path: Path) -> None:
    records = tmp_path / "records.sqlite"
    records.write_bytes(b"no database" * 100)
    complaints: list[str] = []
    refresher = Refresher(str(records), 1, Anywhere("train"), None, pytest.fail, complaints.append, lambda act: act())
    refresher.measured(HERE)
    assert len(complaints) == 1
    assert list(tmp_path.iterdir()) == [records]


def test_a_database_server_is_asked_by_the_process_itself() -> None:
    launched: list[JobLaunch] = []
    address = "postgresql+psycopg://database/kintune"
    Refresher(address, 1, Anywhere("train"), None, launched.append, pytest.fail).measured(HERE)
    assert launched[0].files == ()
    assert msgspec.msgpack.decode(launched[0].spec, type=RefreshSpec).records == address
