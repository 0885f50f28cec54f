"""The peak in narrower precisions, on the CPU of this machine."""

from __future__ import annotations

import pytest

from kintune.hardware.cpu import host_extensions

pytestmark = pytest.mark.tvm


def test_every_precision_with_instructions_has_a_peak_of_its_own_here() -> None:
    from kintune.measure.peak import measure_peak
    from kintune.runtime.target import instruction_set, resolve_target

    target = resolve_target("native", 1)
    has = set(instruction_set(target))
    peak = measure_peak(target, 1, 1 << 20)
    assert peak.narrow_gflops is not None
    for precision, any_of in (("bf16", {"avx512bf16", "amxbf16"}), ("int8", {"avx512vnni", "avxvnni"})):
        if has & any_of:
            assert peak.narrow_gflops[precision] > 0
        else:
            assert precision not in peak.narrow_gflops


def test_vectors_of_256_bits_multiply_bytes_too() -> None:
    from kintune.measure.narrow_peak import measure_narrow_peaks
    from kintune.runtime.target import resolve_target

    if "avxvnni" not in (host_extensions() or ()):
        pytest.skip("this CPU has no AVX-VNNI")
    peaks = measure_narrow_peaks(resolve_target("llvm -mcpu=x86-64-v3 -mattr=+avxvnni", 1), 1)
    assert list(peaks) == ["int8"]
    assert peaks["int8"] > 0


def test_the_sums_of_a_loop_stay_in_registers() -> None:
    """With 24 sums in 16 registers, the peak of vectors of 256 bits came out at 0.78."""
    from kintune.compiler.kernels.instructions import BYTES, PAIRS
    from kintune.measure.narrow_peak import _vectors

    for each in (*BYTES, *PAIRS):
        if not each.tiles:
            assert 12 <= _vectors(each)[0].count("zeroinitializer, %entry") < each.registers


def test_a_cpu_without_such_instructions_has_none() -> None:
    from kintune.measure.narrow_peak import measure_narrow_peaks
    from kintune.runtime.target import resolve_target

    assert measure_narrow_peaks(resolve_target("llvm -mcpu=x86-64-v3", 1), 1) == {}
