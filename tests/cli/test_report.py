from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from kintune.errors import JobFailed, StorageError
from kintune.records import RunState, Store
from tests.core.test_failure_report import FAILURE, REPORTS
from tests.support.reports import example_report

if TYPE_CHECKING:
    from tests.conftest import FakeFront
    from tests.support.command import Kintune

pytestmark = pytest.mark.usefixtures("in_an_empty_folder")


@pytest.fixture
def records(tmp_path: Path) -> str:
    where = str(tmp_path / "r.sqlite")
    with Store.open(where) as store:
        for run_id, state in (("done1", RunState.FINISHED), ("bad1", RunState.FAILED), ("open1", RunState.INTERRUPTED)):
            store.runs.create(run_id, key=run_id, model_name="net")
            report = {"done1": example_report(), "bad1": FAILURE}.get(run_id)
            summary = None if report is None else msgspec.json.encode(report)
            store.runs.update(run_id, state=state, summary=summary)
    return where


def test_the_report_of_a_run_in_the_records(kintune: Kintune, records: str) -> None:
    said = kintune("report", "done", "--records", records, "--html", "page.html")
    assert said.code == 0
    assert said.out.startswith("resnet18: 15.0 ms, 1.08x as fast as onnxruntime")
    assert "1.08x as fast as" in Path("page.html").read_text()


def test_the_report_of_a_run_that_failed(kintune: Kintune, records: str) -> None:
    said = kintune("report", "bad1", "--records", records, "--json", "r.json")
    assert said.code == 0
    assert "JobFailed: nothing could be measured" in said.out
    assert json.loads(Path("r.json").read_text())["cause"] == "nothing could be measured"


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_in_a_file(kintune: Kintune, name: str) -> None:
    Path("net.report.json").write_bytes(msgspec.json.encode(REPORTS[name]))
    assert kintune("report", "net.report.json", "--html", "a.html").code == 0
    assert kintune("report", "net.kt", "--html", "b.html").code == 0  # the executable itself is not needed
    assert Path("a.html").read_bytes() == Path("b.html").read_bytes()


def test_what_is_no_report_is_one_line(kintune: Kintune, records: str) -> None:
    Path("bad.json").write_text("{}")
    Path("bytes.json").write_bytes(b"\xff\xfe")
    Path("deep.json").write_bytes(b'{"policy":' + b"[" * 100_000)
    for run, line in (
        ("open1", "is interrupted and has no report; the command that began it goes on with it"),
        ("none1", "there is no run none1"),
        ("net.kt", "there is no report net.report.json beside it"),
        ("missing.json", "missing.json does not exist"),
        ("bad.json", "is no report of this version"),
        ("bytes.json", "is no report of this version"),
        ("deep.json", "is no report of this version"),
        ("a" * 300, f"there is no run {'a' * 300}"),
        ("a" * 300 + ".kt", "there is no report"),
    ):
        said = kintune("report", run, "--records", records)
        assert (said.code, said.out, said.err.count("\n")) == (2, "", 1), said
        assert line in said.err
    said = kintune("report", "done1", "--records", records, "--html", "missing/page.html")
    assert (said.code, said.out) == (2, "")


def test_a_report_is_written_beside_the_executable(kintune: Kintune, fake_front: FakeFront) -> None:
    said = kintune("tune", "zoo:resnet18", "--quiet", "-o", "net.kt")
    assert said.code == 0
    assert f"The report is {Path('net.report.json').absolute()}" in said.out
    assert json.loads(Path("net.report.json").read_text())["run_id"] == fake_front.outcome.run_id
    assert kintune("report", "net.kt").out.startswith("resnet18: 15.0 ms")


@pytest.mark.parametrize(("error", "code"), [(JobFailed("it died"), 1), (StorageError("the disk is full"), 2)])
def test_a_run_that_failed_has_a_report(kintune: Kintune, fake_front: FakeFront, error: Exception, code: int) -> None:
    fake_front.outcome = error
    said = kintune("tune", "zoo:resnet18", "--quiet")
    assert (said.code, said.out) == (code, "")
    document = json.loads(Path("resnet18.report.json").read_text())
    assert (document["error"], document["cause"]) == (type(error).__name__, str(error))
    assert document["options"]["trials"] == 1000
    assert kintune("tune", "zoo:resnet18", "--quiet", "--json", "-").out.startswith("{")


def test_each_of_several_models_has_its_report(kintune: Kintune, fake_front: FakeFront) -> None:
    fake_front.outcomes = {"gpt2": JobFailed("it died")}
    said = kintune("tune", "zoo:resnet18", "zoo:gpt2", "--quiet")
    assert said.code == 1
    assert json.loads(Path("resnet18.report.json").read_text())["model"]["name"] == "resnet18"
    assert json.loads(Path("gpt2.report.json").read_text())["cause"] == "it died"


def test_a_wrong_option_leaves_no_report(kintune: Kintune, fake_front: FakeFront, tmp_path: Path) -> None:
    assert kintune("tune", "zoo:resnet18", "--trials", "0").code == 2
    assert kintune("tune", "zoo:resnet18", "--quiet", "--verbose").code == 2
    assert list(tmp_path.iterdir()) == []


def test_a_report_that_cannot_be_written_does_not_hide_what_was_found(
    kintune: Kintune, fake_front: FakeFront, tmp_path: Path
) -> None:
    (tmp_path / "resnet18.report.json").mkdir()
    said = kintune("tune", "zoo:resnet18", "--quiet")
    assert said.code == 2
    assert "1.08x as fast as onnxruntime" in said.out
    assert "cannot write" in said.err


def test_control_characters_of_names_do_not_reach_the_terminal(kintune: Kintune) -> None:
    evil = "net\x1b[2J\n\x9b"
    report = example_report(notes=(evil,))
    model = msgspec.structs.replace(report.model, name=evil)
    Path("x.json").write_bytes(msgspec.json.encode(msgspec.structs.replace(report, model=model)))
    said = kintune("report", "x.json")
    assert "net [2J  " in said.out
    assert not {"\x1b", "\x9b"} & set(said.out)
