"""How long the streams are that measure a CPU's bandwidth."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.tvm

MB = 1 << 20


@pytest.mark.parametrize(
    ("cache", "triad", "read"), [(0, 64, 64), (32, 128, 128), (128, 256, 512), (384, 256, 768)]
)  # fmt: skip
def test_no_stream_fits_the_caches(cache: int, triad: int, read: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from kintune.measure import peak
    from kintune.runtime.target import resolve_target

    shapes: list[Any] = []

    def timed(_function: Any, _target: Any, given: Any, _repeats: int, _backend: Any) -> Any:
        shapes.append(given)
        return lambda: (1.0,)

    monkeypatch.setattr(peak, "evaluator", timed)
    monkeypatch.setattr(peak, "measure_narrow_peaks", lambda *_: {})
    found = peak.measure_peak(resolve_target("native", 2), 2, cache * MB)
    _, of_triad, of_sum = shapes
    assert len(of_triad) == 3
    assert [4 * length for (length,) in of_triad] == [pytest.approx(triad * MB, rel=1e-3)] * 3
    assert 4 * of_sum[0][0] == pytest.approx(read * MB, rel=1e-3)
    assert found.read_gbytes_per_s == 4 * of_sum[0][0] / 1e9
    assert found.gbytes_per_s == 12 * of_triad[0][0] / 1e9


@pytest.mark.parametrize(("cpu", "lanes"), [("x86-64", 4), ("haswell", 8), ("znver4", 16)])
def test_sums_of_the_peak_fit_the_registers_of_the_target(
    cpu: str, lanes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On twice the registers, a processor with AVX2 reached three quarters of its peak."""
    import json

    from kintune.measure import peak
    from kintune.runtime.target import resolve_target

    shapes: list[Any] = []

    def timed(_function: Any, _target: Any, given: Any, _repeats: int, _backend: Any) -> Any:
        shapes.append(given)
        return lambda: (1.0,)

    monkeypatch.setattr(peak, "evaluator", timed)
    monkeypatch.setattr(peak, "measure_narrow_peaks", lambda *_: {})
    target = resolve_target(json.dumps({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": cpu}), 2)
    found = peak.measure_peak(target, 2, MB)
    ((threads, chains, width),) = shapes[0]
    assert (threads, width) == (2, lanes)
    assert found.gflops == pytest.approx(2e-9 * threads * chains * width * (1 << 16))
    peak.host_reference_kernel(target, 2)
    assert shapes[-1] == [(2, chains, 16)], "the times of the reference kernel would not compare with stored ones"


def test_the_caches_of_all_cores_count(monkeypatch: pytest.MonkeyPatch) -> None:
    from kintune.hardware.cores import choose_cores
    from kintune.hardware.cpu import inspect_machine
    from kintune.measure import hardware, peak
    from kintune.runtime.target import resolve_target

    machine, cores = inspect_machine(), choose_cores(1)
    largest = max((cache.size for cache in machine.caches), default=0)
    asked: list[int] = []
    monkeypatch.setattr(peak, "measure_peak", lambda _target, _threads, cache_bytes: asked.append(cache_bytes))
    for of_all in (0, largest + MB):
        monkeypatch.setattr(hardware, "last_level_bytes", lambda _cores, of_all=of_all: of_all)
        hardware.host_hardware(resolve_target("native", 1), cores, machine).peak()
    assert asked == [largest, largest + MB]
