from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kintune.records import Store
from kintune.testing.records import add_workload, measurement
from kintune.transfer.upgrade import UpgradeSummary

if TYPE_CHECKING:
    from tests.support.command import Kintune


@pytest.fixture
def where(tmp_path: Path) -> Path:
    path = tmp_path / "records.sqlite"
    with Store.open(path) as store:
        store.measurements.add(measurement(add_workload(store), 1, 2.0))
    return path


def test_what_became_of_measurements_is_said(kintune: Kintune, where: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kintune.cli.records_upgrade.upgrade_records", lambda _: UpgradeSummary(1, 20, 3, 4))
    said = kintune("records", "upgrade", "--records", where)
    assert said.code == 0
    counts = "1 measurement converted, 20 kept for training alone, 3 dropped, 4 as they were"
    assert said.out == f"{where}: {counts}\n"
    document = json.loads(kintune("records", "upgrade", "--records", where, "--json", "-").out)
    assert document == {
        "schema_version": 1,
        "records": str(where),
        "converted": 1,
        "training": 20,
        "dropped": 3,
        "current": 4,
    }


def test_records_without_earlier_programs_stay(kintune: Kintune, where: Path) -> None:
    assert "0 measurements converted" in kintune("records", "upgrade", "--records", where).out
    with Store.open(where) as store:
        assert store.counts().measurements == 1


def test_there_must_be_records(kintune: Kintune, tmp_path: Path) -> None:
    said = kintune("records", "upgrade", "--records", tmp_path / "none.sqlite")
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "none.sqlite" in said.err
