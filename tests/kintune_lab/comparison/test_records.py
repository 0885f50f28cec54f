from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from kintune.core.measurement_protocol import DeviceType
from kintune.records import Store, import_records
from kintune.testing.records import add_workload, measurement
from kintune_lab.comparison.records import collect_records, cpu_name, keep_records


def kept(directory: Path, *seeds: int) -> Path:
    """The directory of a cell that has measured these programs of one workload."""
    directory.mkdir()
    database = directory / "records.sqlite"
    with Store.open(str(database)) as store:
        workload = add_workload(store, "conv")
        for seed in seeds:
            store.measurements.add(measurement(workload, seed, 1.0 + seed))
    keep_records(database, directory)
    return directory


def test_cells_keep_what_they_measured_and_no_database(tmp_path: Path) -> None:
    (file,) = kept(tmp_path / "a", 1, 2).iterdir()
    assert file.name.startswith("records-")
    assert file.name.endswith(".jsonl.gz")


def test_a_cell_that_measured_nothing_keeps_nothing(tmp_path: Path) -> None:
    assert list(kept(tmp_path / "a").iterdir()) == []


def test_all_cells_make_one_file(tmp_path: Path) -> None:
    cells = [kept(tmp_path / "a", 1, 2), kept(tmp_path / "b", 2, 3), kept(tmp_path / "c")]
    (name,) = collect_records(tmp_path, cells)
    with Store.open(":memory:") as store:
        assert import_records(store, tmp_path / name).added == 3
    before = (tmp_path / name).read_bytes()
    assert collect_records(tmp_path, cells) == [name]
    assert (tmp_path / name).read_bytes() == before


def test_without_cells_there_is_no_file(tmp_path: Path) -> None:
    assert collect_records(tmp_path, []) == []


@pytest.mark.parametrize(
    ("model", "target", "name"),
    [
        ("Intel(R) Xeon(R) Processor", {"mcpu": "emeraldrapids"}, "intel-xeon-emeraldrapids"),
        ("AMD EPYC 9R14", {"mcpu": "znver4"}, "amd-epyc-9r14-znver4"),
        ("AMD Ryzen 9 7950X 16-Core Processor", {}, "amd-ryzen-9-7950x"),
        ("Intel(R) Core(TM) i7-1185G7 @ 3.00GHz", {"mcpu": "tigerlake"}, "intel-core-i7-1185g7-tigerlake"),
        ("", {}, "cpu"),
    ],
)
def test_a_cpu_names_files(model: str, target: dict[str, str], name: str) -> None:
    device = DeviceType(msgspec.json.encode(target).decode(), model, (), 2, "2-cold")
    assert cpu_name(device) == name
