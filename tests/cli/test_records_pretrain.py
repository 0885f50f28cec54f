from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kintune.records import Store
from kintune.testing.synthetic_space import MatMul
from tests.support.toy_records import CONDITIONS, ToyRecords

if TYPE_CHECKING:
    from tests.support.command import Kintune


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records of a job on two products and a convolution."""
    path = tmp_path_factory.mktemp("records") / "records.sqlite"
    with Store.open(path) as store:
        dense = [MatMul(name * 32, 64, 128, extent) for name, extent in (("a", 64), ("b", 96))]
        ToyRecords(store).tune(*dense, MatMul("c" * 32, 64, 64, 64, operator="conv2d"))
    return path


@pytest.fixture
def where(tuned: Path, tmp_path: Path) -> Path:
    path = tmp_path / "records.sqlite"
    path.write_bytes(tuned.read_bytes())
    return path


def pretrained(kintune: Kintune, where: Path, *arguments: object) -> dict[str, Any]:
    said = kintune("records", "pretrain", *arguments, "--records", where, "--json", "-")
    assert said.code == 0
    document: dict[str, Any] = json.loads(said.out)
    return document


def test_each_family_gets_a_model_that_is_kept(kintune: Kintune, where: Path) -> None:
    document = pretrained(kintune, where)
    families = {model["family"]: model for model in document["models"]}
    assert families.keys() <= {"op:dense", "op:conv2d"}
    dense = families["op:dense"]
    assert (dense["workloads"], dense["device_type"]) == (2, CONDITIONS.device_type)
    assert 0.5 < dense["accuracy"] <= 1.0
    assert dense["unseen"] is not None
    with Store.open(where) as store:
        latest = store.models.find(CONDITIONS.device_type, "op:dense")[0].version
        assert (latest.blob, latest.rows) == (dense["model"], dense["samples"])
        assert store.blobs.get(latest.blob)
    assert pretrained(kintune, where)["models"] == document["models"]


def test_the_table_says_for_whom_and_how_good(kintune: Kintune, where: Path) -> None:
    said = kintune("records", "pretrain", "--records", where)
    about, head, *rows = said.out.splitlines()
    assert about == f"a processor, 1 thread ({CONDITIONS.device_type[:8]}), {CONDITIONS.compiler}"
    assert head.split() == ["family", "workloads", "samples", "ranked", "right", "of", "unseen", "workloads"]
    assert "op:dense" in [row.split()[0] for row in rows]
    assert all(len(row.split()) == 5 for row in rows)


@pytest.mark.parametrize("algorithm", ["none", "hash", "measured"])
def test_every_algorithm_has_families_of_its_own(kintune: Kintune, where: Path, algorithm: str) -> None:
    document = pretrained(kintune, where, "--families", algorithm)
    assert document["families"] == algorithm
    assert document["models"]


def test_one_type_of_device_can_be_chosen(kintune: Kintune, where: Path) -> None:
    assert pretrained(kintune, where, "--device", CONDITIONS.device_type[:6])["models"]
    said = kintune("records", "pretrain", "--device", "none", "--records", where)
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "nothing was measured on a device type none" in said.err


def test_records_without_samples_say_what_to_do(kintune: Kintune, tmp_path: Path) -> None:
    path = tmp_path / "empty.sqlite"
    Store.open(path).close()
    said = kintune("records", "pretrain", "--records", path)
    assert (said.code, said.out.count("\n")) == (0, 1)
    assert said.out.startswith(f"{path}: no family has 12 measured programs with features; tune a model")


def test_damage_is_left_out_and_counted(kintune: Kintune, where: Path) -> None:
    with sqlite3.connect(where) as connection:
        connection.execute("UPDATE measurements SET cause = 'x' WHERE id = 2")
    connection.close()
    said = kintune("records", "pretrain", "--records", where)
    assert said.code == 0
    assert said.out.splitlines()[-1] == "left out 1 damaged record; 'kintune records check' says which"


def test_a_second_machine_learns_the_same_from_what_was_exported(kintune: Kintune, where: Path, tmp_path: Path) -> None:
    file, elsewhere = tmp_path / "all.kr", tmp_path / "elsewhere.sqlite"
    kintune("records", "export", file, "--records", where)
    assert kintune("records", "import", file, "--records", elsewhere).err == ""
    assert pretrained(kintune, elsewhere)["models"] == pretrained(kintune, where)["models"]


@pytest.mark.parametrize("arguments", [["--families", "friends"], ["--seed", "-1"], ["--seed", "x"]])
def test_bad_input_is_one_line(kintune: Kintune, where: Path, arguments: list[str]) -> None:
    said = kintune("records", "pretrain", *arguments, "--records", where)
    assert (said.code, said.out) == (2, "")
    assert arguments[1] in said.err


def test_no_line_is_wider_than_the_terminal(kintune: Kintune, where: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    said = kintune("records", "pretrain", "--records", where)
    _about, head, *rows = said.out.splitlines()
    assert head.split() == ["family", "ranked", "right", "of", "unseen", "workloads"]
    assert max(map(len, [head, *rows])) <= 50
