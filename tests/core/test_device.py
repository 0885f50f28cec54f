from __future__ import annotations

import msgspec
import pytest

from kintune.core.device import Peak
from tests.support.boards import board_about

PEAK = Peak(gflops=100.0, gbytes_per_s=10.0, threads=2, read_gbytes_per_s=12.5)


@pytest.mark.parametrize(("flops", "nbytes", "least_us"), [(1e9, 0, 1e4), (1e9, 1e9, 8e4), (1e9, 1e7, 1e4), (0, 0, 0)])
def test_the_roofline_is_whichever_takes_longer(flops: float, nbytes: float, least_us: float) -> None:
    assert PEAK.least_us(flops, nbytes) == pytest.approx(least_us)


def test_without_a_figure_for_reading_the_triads_counts_with_what_it_read_unasked() -> None:
    assert Peak(100.0, 9.0, 2).least_us(0, 1.2e9) == pytest.approx(1e5)


def test_a_peak_of_an_earlier_version_can_be_read() -> None:
    assert msgspec.convert({"gflops": 1.0, "gbytes_per_s": 2.0, "threads": 3}, Peak) == Peak(1.0, 2.0, 3)


def test_a_narrower_precision_is_as_fast_as_its_instructions() -> None:
    assert PEAK.gflops_in("fp32") == 100.0
    assert PEAK.gflops_in("bf16") is None, "not measured"
    peak = msgspec.structs.replace(PEAK, narrow_gflops={"bf16": 700.0})
    assert (peak.gflops_in("bf16"), peak.gflops_in("int8")) == (700.0, 100.0)


def test_arithmetic_in_a_narrower_precision_takes_as_long_as_its_peak_says() -> None:
    peak = msgspec.structs.replace(PEAK, narrow_gflops={"bf16": 1000.0})
    assert peak.least_us(1e9, 1e7, "bf16") == pytest.approx(1e3)
    assert peak.least_us(1e9, 1e8, "bf16") == pytest.approx(8e3)
    assert PEAK.least_us(1e9, 1e7, "bf16") == pytest.approx(8e2), "without that peak, only memory takes time"


def test_a_device_that_is_shared_is_of_a_type_of_its_own() -> None:
    alone = board_about("Cortex")
    crowded = alone.crowded()
    assert crowded.device_type.protocol == "2-cold-crowded"
    assert crowded.device_type.digest != alone.device_type.digest
    assert msgspec.structs.replace(crowded, device_type=alone.device_type) == alone
