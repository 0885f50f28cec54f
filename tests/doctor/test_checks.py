from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import msgspec
import pytest

from kintune.core.device import DeviceDescription, Machine, NarrowSpeed, Peak
from kintune.core.measurement_protocol import DeviceType, MeasurementProtocol
from kintune.doctor import checks as module
from kintune.doctor.checks import (
    check_gpus,
    check_isolation,
    check_narrow,
    check_peak,
    check_records,
    check_temporary_folder,
)
from kintune.errors import EngineError, OrderError
from kintune.hardware.check import HardwareVerdict
from kintune.hardware.gpus import Gpu
from kintune.records import Store
from kintune.wire.confinement import ConfinementLayer
from tests.support.fake_interview import FakeInterview

H100 = Gpu(0, "NVIDIA H100", "sm_90", 81559, "580.1")


def no_compiler() -> str:
    raise OrderError("no CUDA compiler found: install nvcc, or name the toolkit in CUDA_HOME")


def test_a_machine_without_gpus_lacks_nothing() -> None:
    (check,) = check_gpus(lambda: (), no_compiler)
    assert (check.verdict, check.finding) == (HardwareVerdict.GOOD, "none")
    assert [each.name for each in check_gpus(lambda: (), lambda: "/opt/nvcc")] == ["GPUs", "CUDA compiler"]


def test_layers_of_isolation_are_told_with_what_turns_them_on(monkeypatch: pytest.MonkeyPatch) -> None:
    found = (
        ConfinementLayer("namespaces", "no network", True, "by bwrap"),
        ConfinementLayer("Landlock", "files", False, "old", "a new kernel"),
    )
    monkeypatch.setattr(module, "layers", lambda: found)
    on, off = check_isolation()
    assert (on.verdict, on.name, on.finding) == (HardwareVerdict.GOOD, "isolation: namespaces", "by bwrap (no network)")
    assert (off.verdict, off.finding, off.remedy) == (HardwareVerdict.NOTE, "old", "a new kernel")


def test_gpus_are_told_with_what_names_them() -> None:
    gpu, compiler = check_gpus(lambda: (H100,), lambda: "/opt/nvcc")
    assert gpu.name == "GPU 0"
    assert gpu.finding == "NVIDIA H100, sm_90, 81559 MB, driver 580.1; --device cuda:0"
    assert compiler.finding == "/opt/nvcc"


@pytest.mark.parametrize(
    ("change", "remedy"),
    [
        ({"driver": "550.54"}, "driver 580 or later"),
        ({"architecture": "sm_70"}, "sm_75 and later only"),
        ({"shared": False}, "nvidia-smi -i 0 -c DEFAULT"),
    ],
)
def test_one_that_cannot_be_used_comes_with_a_remedy(change: dict[str, Any], remedy: str) -> None:
    check, _ = check_gpus(lambda: (msgspec.structs.replace(H100, **change),), lambda: "/opt/nvcc")
    assert check.verdict is HardwareVerdict.NOTE
    assert remedy in check.remedy


def test_a_gpu_without_a_compiler_is_worth_a_note() -> None:
    _, compiler = check_gpus(lambda: (H100,), no_compiler)
    assert compiler.verdict is HardwareVerdict.NOTE
    assert (compiler.finding, compiler.remedy) == (
        "no CUDA compiler found",
        "install nvcc, or name the toolkit in CUDA_HOME",
    )


def test_code_may_be_mapped_from_the_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert (check_temporary_folder().verdict, check_temporary_folder().finding) == (HardwareVerdict.GOOD, str(tmp_path))

    def refuse(*_: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("mmap.mmap", refuse)  # as where it is mounted with noexec
    check = check_temporary_folder()
    assert (check.verdict, check.finding) == (
        HardwareVerdict.PROBLEM, f"programs may not run from {tmp_path}: Operation not permitted"
    )  # fmt: skip
    assert "TMPDIR" in check.remedy
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    assert check_temporary_folder().finding == "no file can be written: No such file or directory"
    assert list(tmp_path.iterdir()) == []


PEAK = Peak(gflops=400.0, gbytes_per_s=20.0, threads=2, read_gbytes_per_s=25.0, narrow_gflops={"bf16": 3000.0})

MACHINE = Machine("a CPU", "x86_64", 2, 2, 2, 2, 1 << 34, (), ())

DEVICE = DeviceType(target="{}", model="a CPU", isa=(), threads=2, protocol="1-cold")

ABOUT = DeviceDescription(DEVICE, MeasurementProtocol(threads=2), (), MACHINE, "tvm")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> FakeInterview:
    fake = FakeInterview(ABOUT, peak=PEAK)
    monkeypatch.setattr(module, "interview", fake)
    return fake


def test_it_is_measured_once_and_again_when_asked(asked: FakeInterview, tmp_path: Path) -> None:
    where = str(tmp_path / "records.sqlite")
    first = check_peak(where)
    assert first.verdict is HardwareVerdict.GOOD
    assert (
        first.finding
        == "400 GFLOP a second with 2 threads (3.00 TFLOP in bf16), streaming 20.0 GB and reading 25.0 GB a second"
    )
    assert check_peak(where) == first
    assert asked.asked == ["peak"]
    assert check_peak(where, again=True) == first
    assert asked.asked == ["peak", "peak"]
    with Store.open(where) as store:
        assert store.devices.peak(DEVICE.digest) == PEAK


def test_what_an_earlier_version_measured_is_completed(asked: FakeInterview, tmp_path: Path) -> None:
    where = tmp_path / "records.sqlite"
    with Store.open(where) as store:
        store.devices.note_peak(DEVICE.digest, Peak(300.0, 20.0, 2))
    assert "400 GFLOP" in check_peak(str(where)).finding


def test_a_worker_that_dies_is_a_problem(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def dies(*_: object) -> NoReturn:
        raise EngineError("the device worker ended without an answer")

    monkeypatch.setattr(module, "interview", dies)
    check = check_peak(str(tmp_path / "records.sqlite"))
    assert check.verdict is HardwareVerdict.PROBLEM
    assert "without an answer" in check.finding


def test_records_that_do_not_exist_yet_are_a_note_and_are_not_created(tmp_path: Path) -> None:
    (check,) = check_records(str(tmp_path / "records.sqlite"))
    assert check.verdict is HardwareVerdict.NOTE
    assert list(tmp_path.iterdir()) == []


def test_records_say_how_much_they_hold(tmp_path: Path) -> None:
    with Store.open(tmp_path / "records.sqlite") as store:
        store.runs.create("r1", key="k", model_name="resnet18")
    (check,) = check_records(str(tmp_path / "records.sqlite"))
    assert check.verdict is HardwareVerdict.GOOD
    assert "1 run, 0 measurements" in check.finding


def test_what_is_not_a_records_file_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "records.sqlite").write_text("not a database, and long enough to be seen as none" * 40)
    (check,) = check_records(str(tmp_path / "records.sqlite"))
    assert check.verdict is HardwareVerdict.PROBLEM
    assert "records.sqlite" in check.finding


def test_speeds_with_shorter_numbers_are_measured_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    speeds = (
        NarrowSpeed("AMX", "bf16", times_fp32=4.06),
        NarrowSpeed("vdpbf16ps", "bf16", times_fp32=0.7),
        NarrowSpeed("AMX", "int8", "the kernel of this system does not permit it"),
        NarrowSpeed("vpdpbusd", "int8", times_fp32=3.9),
    )
    fake = FakeInterview(ABOUT, narrow=speeds)
    monkeypatch.setattr(module, "interview", fake)
    where = str(tmp_path / "records.sqlite")
    for again, times in ((False, 1), (False, 1), (True, 2)):
        amx, vectors, refused, of_bytes = check_narrow(where, again=again)
        assert fake.asked == ["narrow"] * times
    assert (amx.verdict, amx.name, amx.finding) == (HardwareVerdict.GOOD, "bf16 by AMX", "works, 4.1 times fp32")
    assert vectors.finding == "works, 0.7 times fp32: it is not used"
    assert (refused.verdict, refused.finding) == (HardwareVerdict.NOTE, "the kernel of this system does not permit it")
    assert of_bytes.finding == "works, 3.9 times fp32"
