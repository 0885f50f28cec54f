from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kintune.cli import doctor
from kintune.hardware.check import Check, HardwareVerdict

if TYPE_CHECKING:
    from tests.support.command import Kintune

GOOD = Check("python", HardwareVerdict.GOOD, "3.11.7")
BAD = Check("apache-tvm-ffi", HardwareVerdict.PROBLEM, "0.1.15 makes TVM die", "pip install 'apache-tvm-ffi<0.1.15'")


@pytest.fixture
def findings(monkeypatch: pytest.MonkeyPatch) -> list[Check]:
    """What the doctor finds in the software; tests add to it."""
    found = [GOOD]
    monkeypatch.setattr(doctor, "check_software", lambda: found)
    monkeypatch.setattr(
        doctor, "check_peak", lambda *_, again, on_wait: Check("measured peak", HardwareVerdict.GOOD, f"{again=}")
    )
    return found


def test_a_healthy_machine_can_tune(kintune: Kintune, findings: list[Check]) -> None:
    said = kintune("doctor")
    assert said.code == 0
    assert said.out.splitlines()[-1] == "This machine can tune."


def test_a_problem_is_shown_with_its_remedy_and_in_the_exit_code(kintune: Kintune, findings: list[Check]) -> None:
    findings.append(BAD)
    said = kintune("doctor")
    assert said.code == 1
    assert "BAD  apache-tvm-ffi" in said.out
    assert f"-> {BAD.remedy}" in said.out


def test_the_document_says_the_same(kintune: Kintune, findings: list[Check]) -> None:
    findings.append(BAD)
    said = kintune("doctor", "--json", "-")
    document = json.loads(said.out)
    assert (document["schema_version"], document["can_tune"]) == (1, False)
    assert document["checks"][1]["verdict"] == "problem"
    assert document["machine"]["threads"] >= 1
    assert "BAD" in said.err


def test_records_that_are_none_are_a_problem(kintune: Kintune, findings: list[Check], tmp_path: Path) -> None:
    (tmp_path / "records").write_text("no database " * 400)
    said = kintune("doctor", "--records", tmp_path / "records")
    assert said.code == 1
    assert "BAD  records" in said.out


@pytest.mark.parametrize("options", [(), ("--measure",)])
def test_the_peak_is_measured_when_the_machine_can_tune(
    kintune: Kintune, findings: list[Check], options: tuple[str, ...]
) -> None:
    assert f"again={bool(options)}" in kintune("doctor", *options).out
    findings.append(BAD)
    assert "measured peak" not in kintune("doctor", *options).out


@pytest.mark.tvm
def test_this_machine_can_tune(kintune: Kintune) -> None:
    said = kintune("doctor")
    assert said.code == 0, said.out
    assert "loading tvm" in said.out
