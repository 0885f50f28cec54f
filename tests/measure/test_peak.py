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


@pytest.mark.parametrize(
    ("architecture", "cpu", "lanes", "sums"),
    [
        ("x86_64", "x86-64", 4, 12),
        ("x86_64", "haswell", 8, 12),
        ("x86_64", "znver4", 16, 24),
        ("aarch64", "neoverse-v1", 4, 24),
    ],
)
def test_sums_of_the_peak_fit_the_registers_of_the_target(
    architecture: str, cpu: str, lanes: int, sums: int, monkeypatch: pytest.MonkeyPatch
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
    target = resolve_target(json.dumps({"kind": "llvm", "mtriple": f"{architecture}-linux-gnu", "mcpu": cpu}), 2)
    found = peak.measure_peak(target, 2, MB)
    ((threads, chains, width),) = shapes[0]
    assert (threads, chains, width) == (2, sums, lanes)
    assert found.gflops == pytest.approx(2e-9 * threads * chains * width * (1 << 16))
    peak.host_reference_kernel(target, 2)
    of_reference = 16 if architecture == "x86_64" else 4
    assert shapes[-1] == [(2, 12, of_reference)], "the times of the reference kernel would not compare with stored ones"


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


@pytest.mark.parametrize(("architecture", "cpu", "chains"), [("aarch64", "neoverse-n1", 24), ("x86_64", "haswell", 12)])
def test_multiply_adds_of_the_peak_wait_for_no_other_instruction(architecture: str, cpu: str, chains: int) -> None:
    """On aarch64, each of them came after a move, which takes a port as well."""
    import re

    import tvm

    from kintune.measure import peak

    target = tvm.target.Target({"kind": "llvm", "mtriple": f"{architecture}-linux-gnu", "mcpu": cpu})
    lanes = {"aarch64": 4, "x86_64": 8}[architecture]
    function = peak._multiply_adds(1, chains, lanes).with_attr("global_symbol", "main")
    text = tvm.compile(tvm.IRModule({"main": function}), target).mod.inspect_source("asm")
    loops = [part for part in re.split(r"^\.L\w+:", text, flags=re.MULTILINE) if "fmla" in part or "vfmadd" in part]
    instructions = [line.split()[0] for part in loops for line in part.splitlines() if re.match(r"\t[a-z]", line)]
    fused = [name for name in instructions if name.startswith(("fmla", "vfmadd"))]
    assert len(fused) >= chains
    assert not [name for name in instructions if name.startswith(("fmov", "vmova", "vbroadcast"))]
