from __future__ import annotations

from pathlib import Path

import pytest

from kintune.doctor.check import Verdict
from kintune.doctor.peak import note_peak
from kintune.doctor.storage import check_records
from kintune.measure.about import Peak
from kintune.measure.protocol import DeviceType
from kintune.records import Store

DEVICE = DeviceType(target="{}", model="a CPU", isa=(), threads=2, protocol="1-cold")


def test_records_that_do_not_exist_yet_are_a_note_and_are_not_created(tmp_path: Path) -> None:
    (check,) = check_records(str(tmp_path / "records.sqlite"), DEVICE.model)
    assert check.verdict is Verdict.NOTE
    assert list(tmp_path.iterdir()) == []


def test_records_say_how_much_they_hold(tmp_path: Path) -> None:
    with Store.open(tmp_path / "records.sqlite") as store:
        store.runs.create("r1", key="k", model_name="resnet18")
    check, peak = check_records(str(tmp_path / "records.sqlite"), DEVICE.model)
    assert check.verdict is Verdict.GOOD
    assert "1 runs, 0 measurements" in check.finding
    assert (peak.verdict, peak.finding) == (Verdict.NOTE, "not measured yet; 'kintune estimate' does it")


@pytest.mark.parametrize(
    ("cpu", "said"), [("a CPU", "400 GFLOP and 20.0 GB a second with 2 threads"), ("another", "not")]
)
def test_the_peak_of_this_cpu_is_told(tmp_path: Path, cpu: str, said: str) -> None:
    with Store.open(tmp_path / "records.sqlite") as store:
        note_peak(store, DEVICE, Peak(gflops=400.0, gbytes_per_s=20.0, threads=2))
    assert check_records(str(tmp_path / "records.sqlite"), cpu)[1].finding.startswith(said)


def test_what_is_not_a_records_file_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "records.sqlite").write_text("not a database, and long enough to be seen as none" * 40)
    (check,) = check_records(str(tmp_path / "records.sqlite"), DEVICE.model)
    assert check.verdict is Verdict.PROBLEM
    assert "records.sqlite" in check.finding
