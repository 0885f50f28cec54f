"""What kernels with shorter numbers gain, on the CPU of this machine."""

from __future__ import annotations

import pytest

from kintune.hardware.cpu import host_extensions

pytestmark = pytest.mark.tvm


@pytest.mark.parametrize(
    ("target", "needed"),
    [("native", {"avx512vnni"}), ("llvm -mcpu=x86-64-v3 -mattr=+avxvnni", {"avxvnni"})],
)
def test_products_of_bytes_compute_what_numpy_does_and_take_some_time(target: str, needed: set[str]) -> None:
    from kintune.measure.narrow import measure_narrow
    from kintune.runtime.target import resolve_target

    if not needed.issubset(host_extensions() or ()):
        pytest.skip(f"this CPU has no {', '.join(needed)}")
    (found,) = [each for each in measure_narrow(resolve_target(target, 1)) if each.instructions == "vpdpbusd"]
    assert found.precision == "int8"
    assert not found.problem
    assert found.times_fp32 > 0


def test_a_cpu_without_instructions_for_shorter_numbers_has_none() -> None:
    from kintune.measure.narrow import measure_narrow
    from kintune.runtime.target import resolve_target

    assert measure_narrow(resolve_target("llvm -mcpu=x86-64-v3", 1)) == ()
