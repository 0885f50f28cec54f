from __future__ import annotations

from pathlib import Path

from kintune.doctor.checks import check_records
from kintune.hardware.check import Verdict
from kintune.records import Store


def test_records_that_do_not_exist_yet_are_a_note_and_are_not_created(tmp_path: Path) -> None:
    (check,) = check_records(str(tmp_path / "records.sqlite"))
    assert check.verdict is Verdict.NOTE
    assert list(tmp_path.iterdir()) == []


def test_records_say_how_much_they_hold(tmp_path: Path) -> None:
    with Store.open(tmp_path / "records.sqlite") as store:
        store.runs.create("r1", key="k", model_name="resnet18")
    (check,) = check_records(str(tmp_path / "records.sqlite"))
    assert check.verdict is Verdict.GOOD
    assert "1 runs, 0 measurements" in check.finding


def test_what_is_not_a_records_file_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "records.sqlite").write_text("not a database, and long enough to be seen as none" * 40)
    (check,) = check_records(str(tmp_path / "records.sqlite"))
    assert check.verdict is Verdict.PROBLEM
    assert "records.sqlite" in check.finding
