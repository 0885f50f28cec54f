from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from kintune.core.candidate import Candidate
from kintune.core.measurement_protocol import DeviceType
from kintune.core.outcome import Outcome, Status
from kintune.core.workload import Subgraph
from kintune.integrations.exchange import Exported, TuningDatabase, gather
from kintune.records import Measurement, RunState, Store
from tests.support.reports import example_report

if TYPE_CHECKING:
    from tests.support.command import Kintune


@pytest.fixture
def where(tmp_path: Path) -> Path:
    """Records with two runs."""
    path = tmp_path / "records.sqlite"
    with Store.open(path) as store:
        for run_id, model in (("abc1", "resnet18"), ("abd2", "gpt2")):
            store.runs.create(run_id, key=run_id, model_name=model, seeds={"search": 7})
        store.runs.update("abc1", state=RunState.FINISHED, active_seconds=75.0)
    return path


@pytest.fixture
def measured(where: Path) -> Path:
    """Records whose second run measured one candidate."""
    device = DeviceType(target='{"kind": "llvm"}', model="a CPU", isa=(), threads=1, protocol="1/cold")
    subgraph = Subgraph("dense", "a" * 32, 1, 1e6, "dense", "dense", True)
    with Store.open(where) as store:
        store.workloads.add(subgraph, b"a program")
        measurement = Measurement(
            device_type=store.devices.add(device),
            compiler="0.27.0",
            candidate=Candidate.untuned(subgraph.workload),
            outcome=Outcome(Status.OK, (5.0,)),
            run_id="abd2",
        )
        store.measurements.add(measurement)
    return where


def test_runs_are_listed_latest_first(kintune: Kintune, where: Path) -> None:
    said = kintune("records", "list", "--records", where)
    head, titles, latest, first = said.out.splitlines()
    assert "2 runs, 0 workloads, 0 measurements" in head
    assert titles.split()[:3] == ["run", "model", "state"]
    assert latest.split()[:3] == ["abd2", "gpt2", "running"]
    assert first.split()[1:3] + first.split()[-1:] == ["resnet18", "finished", "01:15"]


def test_the_list_for_machines(kintune: Kintune, where: Path) -> None:
    document = json.loads(kintune("records", "list", "--records", where, "--json", "-").out)
    assert (document["schema_version"], document["counts"]["runs"], document["damaged"]) == (1, 2, 0)
    assert [run["state"] for run in document["runs"]] == ["running", "finished"]


def test_a_run_is_found_by_the_beginning_of_its_id(kintune: Kintune, where: Path) -> None:
    said = kintune("records", "show", "abc", "--records", where)
    assert said.out.splitlines()[0].split() == ["run", "abc1"]
    assert "search 7" in said.out
    document = json.loads(kintune("records", "show", "abd2", "--records", where, "--json", "-").out)
    assert (document["run"]["model"], document["measurements"]) == ("gpt2", 0)


@pytest.mark.parametrize(("start", "said"), [("ab", "2 runs begin with ab"), ("x", "there is no run x")])
def test_a_run_that_is_not_meant_clearly_is_refused(kintune: Kintune, where: Path, start: str, said: str) -> None:
    shown = kintune("records", "show", start, "--records", where)
    assert shown.code == 2
    assert said in shown.err


def damage(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE runs SET model_name = 'resnet19' WHERE run_id = 'abc1'")
    connection.close()


def test_sound_records_are_called_so(kintune: Kintune, where: Path) -> None:
    said = kintune("records", "check", "--records", where)
    assert (said.code, said.out) == (0, f"{where}: sound\n")


def test_damage_is_named_and_shows_in_the_exit_code(kintune: Kintune, where: Path) -> None:
    damage(where)
    said = kintune("records", "check", "--records", where, "--json", "-")
    document: dict[str, Any] = json.loads(said.out)
    assert said.code == 1
    assert [(one["table"], one["id"]) for one in document["damage"]] == [("runs", "abc1")]
    assert "1 damaged; 'kintune records check --remove'" in said.err


def test_damage_can_be_removed(kintune: Kintune, where: Path) -> None:
    damage(where)
    said = kintune("records", "check", "--remove", "--records", where)
    assert (said.code, said.out.splitlines()[-1]) == (0, f"{where}: 1 damaged, all removed")
    assert kintune("records", "check", "--records", where).out == f"{where}: sound\n"
    assert "abd2" in kintune("records", "list", "--records", where).out


def test_a_damaged_run_does_not_hide_the_others(kintune: Kintune, where: Path) -> None:
    damage(where)
    said = kintune("records", "list", "--records", where)
    assert said.code == 0
    assert "1 run is damaged; 'kintune records check' names it" in said.out
    assert "abd2" in said.out


def test_what_is_exported_can_be_imported_elsewhere(kintune: Kintune, measured: Path, tmp_path: Path) -> None:
    file, elsewhere = tmp_path / "all.kr", tmp_path / "elsewhere.sqlite"
    exported = kintune("records", "export", file, "--records", measured, "--json", "-")
    assert json.loads(exported.out)["measurements"] == 1
    said = [kintune("records", "import", file, "--records", elsewhere) for _ in range(2)]
    assert said[0].err == ""
    assert said[0].out == f"{elsewhere}: 1 measurement added, 0 known already\n"
    assert said[1].out == f"{elsewhere}: 0 measurements added, 1 known already\n"


def test_one_run_can_be_exported_alone(kintune: Kintune, measured: Path, tmp_path: Path) -> None:
    for run_id, expected in (("abd", 1), ("abc1", 0)):
        said = kintune("records", "export", tmp_path / "one.kr", "--run", run_id, "--records", measured, "--json", "-")
        assert json.loads(said.out)["measurements"] == expected


def test_a_damaged_file_is_refused_as_a_whole(kintune: Kintune, measured: Path, tmp_path: Path) -> None:
    file, elsewhere = tmp_path / "all.kr", tmp_path / "elsewhere.sqlite"
    kintune("records", "export", file, "--records", measured)
    file.write_bytes(file.read_bytes()[:-20])
    said = kintune("records", "import", file, "--records", elsewhere)
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "all.kr" in said.err
    with Store.open(elsewhere) as store:
        assert store.counts().measurements == 0


@pytest.mark.parametrize("command", ["export", "import"])
@pytest.mark.parametrize("places", [[], ["a.kr", "--metaschedule", "b"]])
def test_one_place_must_be_named(kintune: Kintune, where: Path, command: str, places: list[str]) -> None:
    said = kintune("records", command, *places, "--records", where)
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "name one place" in said.err


def test_a_stock_database_is_written_with_what_was_left_out(
    kintune: Kintune, measured: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[TuningDatabase] = []

    def export(directory: str, database: TuningDatabase) -> Exported:
        given.append(database)
        return Exported(0, {"the untuned program": 1})

    monkeypatch.setattr("kintune.cli.records_exchange.export_metaschedule", export)
    said = kintune("records", "export", "--metaschedule", "stock", "--records", measured)
    assert said.out == "stock: 0 measurements\n  left out 1: the untuned program\n"
    assert [m.times_us for m in given[0].measured] == [(5.0,)]


def test_a_stock_database_is_read(kintune: Kintune, measured: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.open(measured) as store:
        known = gather(store)
    database = msgspec.structs.replace(known, skipped={"a failed measurement": 3})
    monkeypatch.setattr("kintune.cli.records_exchange.read_metaschedule", lambda _: database)
    said = kintune("records", "import", "--metaschedule", "stock", "--records", measured)
    assert said.out == f"{measured}: 1 measurement added, 0 known already\n  left out 3: a failed measurement\n"


@pytest.mark.tvm
def test_a_directory_without_a_stock_database_is_one_line(kintune: Kintune, where: Path, tmp_path: Path) -> None:
    said = kintune("records", "import", "--metaschedule", tmp_path / "none", "--records", where)
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "none" in said.err


@pytest.mark.parametrize("command", [["list"], ["check"], ["upgrade"], ["show", "a"], ["export", "all.kr"]])
def test_looking_creates_no_records(
    kintune: Kintune, tmp_path: Path, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = kintune("records", *command, "--records", tmp_path / "none.sqlite")
    assert said.code == 2
    assert "none.sqlite" in said.err
    assert list(tmp_path.iterdir()) == []


def test_a_finished_run_is_listed_with_what_was_won(kintune: Kintune, tmp_path: Path) -> None:
    where = str(tmp_path / "won.sqlite")
    with Store.open(where) as store:
        store.runs.create("won1", key="won1", model_name="resnet18")
        store.runs.update("won1", state=RunState.FINISHED, summary=msgspec.json.encode(example_report()))
    assert kintune("records", "list", "--records", where).out.splitlines()[-1].endswith("15.0 ms  0.93 onnxruntime")
    (run,) = json.loads(kintune("records", "list", "--records", where, "--json", "-").out)["runs"]
    assert (run["latency_ms"], run["fastest_baseline"]["name"]) == (15.0, "onnxruntime")
