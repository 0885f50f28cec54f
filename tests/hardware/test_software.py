from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kintune.hardware import software
from kintune.hardware.check import Check, HardwareVerdict
from kintune.hardware.software import (
    TVM_FFI_RANGE,
    TVM_VERSION,
    allow_torch,
    check_compiler,
    check_loads,
    check_software,
    forbid_torch,
)

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


@pytest.fixture
def doctor(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Check]]:
    """All checks by name, with some packages in other versions; TVM is not loaded."""
    monkeypatch.setattr(
        software, "check_loads", lambda name, _: Check(f"loading {name}", HardwareVerdict.GOOD, "works")
    )

    def run(**versions: str | None) -> dict[str, Check]:
        given = {"apache-tvm": TVM_VERSION, "apache-tvm-ffi": "0.1.14.post1"}
        given.update({name.replace("_", "-"): version for name, version in versions.items()})
        return {check.name: check for check in check_software(lambda package: given.get(package, "1.0"))}

    return run


def test_versions_that_were_tried_are_good(doctor: Callable[..., dict[str, Check]]) -> None:
    checks = doctor()
    assert {check.verdict for name, check in checks.items() if name != "C compiler"} == {HardwareVerdict.GOOD}
    assert "loading tvm" in checks


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("0.1.15", "segmentation fault"),
        ("0.1.15.post2", "segmentation fault"),
        ("0.1.13", "not tried"),
        (None, "not installed"),
    ],
)
def test_the_wrong_ffi_is_a_problem_with_a_remedy(
    doctor: Callable[..., dict[str, Check]], version: str | None, said: str
) -> None:
    checks = doctor(apache_tvm_ffi=version)
    check = checks["apache-tvm-ffi"]
    assert check.verdict is HardwareVerdict.PROBLEM
    assert said in check.finding
    assert "apache-tvm-ffi>=0.1.14.post0,<0.1.15" in check.remedy
    assert "loading tvm" not in checks


@pytest.mark.parametrize(
    ("version", "verdict"),
    [
        ((3, 9, 18), HardwareVerdict.PROBLEM),
        ((3, 10, 0), HardwareVerdict.GOOD),
        ((3, 13, 7), HardwareVerdict.GOOD),
        ((3, 14, 0), HardwareVerdict.GOOD),
        ((3, 15, 0), HardwareVerdict.PROBLEM),
    ],
)
def test_a_python_that_was_not_tried_is_named(
    doctor: Callable[..., dict[str, Check]],
    monkeypatch: pytest.MonkeyPatch,
    version: tuple[int, int, int],
    verdict: HardwareVerdict,
) -> None:
    monkeypatch.setattr(sys, "version_info", version)
    assert doctor()["python"].verdict is verdict


@pytest.mark.parametrize("version", ["0.26.0", None])
def test_another_compiler_is_a_problem(doctor: Callable[..., dict[str, Check]], version: str | None) -> None:
    check = doctor(apache_tvm=version)["apache-tvm"]
    assert check.verdict is HardwareVerdict.PROBLEM
    assert TVM_VERSION in check.remedy


def test_optional_packages_may_be_missing_and_others_may_not(doctor: Callable[..., dict[str, Check]]) -> None:
    checks = doctor(openvino=None, onnx=None)
    assert checks["openvino"].verdict is HardwareVerdict.NOTE
    assert checks["onnx"].verdict is HardwareVerdict.PROBLEM


def test_the_doctor_and_the_project_agree_on_what_was_tried() -> None:
    text = PYPROJECT.read_text()
    low, high = (".".join(str(part) for part in version) for version in TVM_FFI_RANGE)
    assert f'"apache-tvm=={TVM_VERSION}"' in text
    assert re.search(rf'"apache-tvm-ffi>={re.escape(low)}(\.post\d+)?,<{re.escape(high)}"', text)


@pytest.mark.parametrize(
    ("code", "verdict", "said"),
    [
        ("pass", HardwareVerdict.GOOD, "works"),
        ("import os; os.abort()", HardwareVerdict.PROBLEM, "dies of SIGABRT"),
        ("raise OSError('no such library')", HardwareVerdict.PROBLEM, "fails: OSError: no such library"),
        ("import sys; sys.exit(3)", HardwareVerdict.PROBLEM, "for no stated reason"),
    ],
)
def test_what_dies_while_loading_harms_only_itself(code: str, verdict: HardwareVerdict, said: str) -> None:
    check = check_loads("it", code)
    assert (check.name, check.verdict) == ("loading it", verdict)
    assert said in check.finding


def test_a_compiler_that_links_is_good() -> None:
    assert check_compiler().verdict is HardwareVerdict.GOOD


@pytest.mark.parametrize("others", [(), ("g++",)])
def test_no_compiler_that_links_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: tuple[str, ...]
) -> None:
    for other in others:
        (tmp_path / other).write_text("#!/bin/sh\n")
        (tmp_path / other).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    check = check_compiler()
    assert check.verdict is HardwareVerdict.PROBLEM
    assert "on the path" in check.finding


def test_a_compiler_that_links_nothing_here_need_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/nowhere/c++")
    assert check_compiler().verdict is HardwareVerdict.GOOD


def test_a_compiler_that_does_not_compile_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", sys.executable)
    check = check_compiler()
    assert check.verdict is HardwareVerdict.PROBLEM
    assert sys.executable in check.finding


def test_an_import_fails_until_it_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    forbid_torch()
    with pytest.raises(ImportError):
        __import__("torch")
    assert "torch" not in sys.modules  # scipy asks what stands there for a module's members
    allow_torch()
    forbid_torch()
    forbid_torch()
    allow_torch()
    assert __import__("importlib.util").util.find_spec("json") is not None
    assert all(type(finder).__name__ != "_NoTorch" for finder in sys.meta_path)


def test_what_is_imported_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", sys)
    forbid_torch()
    allow_torch()
    assert sys.modules["torch"] is sys


def test_what_others_forbid_stays_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    forbid_torch()
    allow_torch()
    assert sys.modules["torch"] is None
