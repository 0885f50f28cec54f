from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from kintune.core.device import DeviceDescription, Machine, Peak
from kintune.core.measurement_protocol import DeviceType, MeasurementProtocol
from kintune.doctor import checks as module
from kintune.doctor.checks import check_peak
from kintune.errors import EngineError
from kintune.hardware.check import Verdict
from kintune.records import Store

PEAK = Peak(gflops=400.0, gbytes_per_s=20.0, threads=2, read_gbytes_per_s=25.0)
MACHINE = Machine("a CPU", "x86_64", 2, 2, 2, 2, 1 << 34, (), ())
DEVICE = DeviceType(target="{}", model="a CPU", isa=(), threads=2, protocol="1-cold")
ABOUT = msgspec.msgpack.encode(DeviceDescription(DEVICE, MeasurementProtocol(threads=2), (), MACHINE, "tvm"))


class FakeInterview:
    about = ABOUT

    def __init__(self) -> None:
        self.peaks = 0

    def ask(self, kind: str) -> bytes:
        assert kind == "peak"
        self.peaks += 1
        return msgspec.msgpack.encode(PEAK)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> FakeInterview:
    fake = FakeInterview()

    @contextmanager
    def interview(*_: object) -> Iterator[FakeInterview]:
        yield fake

    monkeypatch.setattr(module, "interview", interview)
    return fake


def test_it_is_measured_once_and_again_when_asked(asked: FakeInterview, tmp_path: Path) -> None:
    where = str(tmp_path / "records.sqlite")
    first = check_peak(where)
    assert first.verdict is Verdict.GOOD
    assert first.finding == "400 GFLOP a second with 2 threads, streaming 20.0 GB and reading 25.0 GB a second"
    assert check_peak(where) == first
    assert asked.peaks == 1
    assert check_peak(where, again=True) == first
    assert asked.peaks == 2
    with Store.open(where) as store:
        assert store.devices.peak(DEVICE.digest) == PEAK


def test_what_an_earlier_version_measured_is_completed(asked: FakeInterview, tmp_path: Path) -> None:
    where = tmp_path / "records.sqlite"
    with Store.open(where) as store:
        store.devices.note_peak(DEVICE.digest, Peak(300.0, 20.0, 2))
    assert "400 GFLOP" in check_peak(str(where)).finding


def test_a_worker_that_dies_is_a_problem(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    @contextmanager
    def interview(*_: object) -> Iterator[FakeInterview]:
        raise EngineError("the device worker ended without an answer")
        yield FakeInterview()

    monkeypatch.setattr(module, "interview", interview)
    check = check_peak(str(tmp_path / "records.sqlite"))
    assert check.verdict is Verdict.PROBLEM
    assert "without an answer" in check.finding
