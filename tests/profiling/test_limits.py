"""What bounds a call, by the roofline."""

from __future__ import annotations

import msgspec
import pytest

from kintune.core.device import Peak
from kintune.core.kernel_call import CallRecord
from kintune.core.profile import Limit
from kintune.profiling.limits import bound_of

PEAK = Peak(gflops=100.0, gbytes_per_s=8.0, threads=2, read_gbytes_per_s=10.0)


def call(flops: float, nbytes: float, *operators: str) -> CallRecord:
    return CallRecord(place=0, kernel="k", operators=operators or ("conv2d",), flops=flops, nbytes=nbytes)


@pytest.mark.parametrize(
    ("record", "us", "limit", "least"),
    [
        (call(1e8, 1e5), 2000.0, Limit.ARITHMETIC, 1000.0),
        (call(1e6, 1e7), 2000.0, Limit.MEMORY, 1000.0),
        (call(0.0, 1e7, "transpose", "reshape"), 2000.0, Limit.COPIES, 1000.0),
        (call(1e4, 1e4), 5.0, Limit.LAUNCH, 1.0),
        (call(1e6, 1e4), 12.0, Limit.ARITHMETIC, 10.0),
    ],
)
def test_the_longer_of_both_bounds(record: CallRecord, us: float, limit: Limit, least: float) -> None:
    bound = bound_of(record, us, 2, PEAK)
    assert bound.limit is limit
    assert bound.least_us == pytest.approx(least)
    assert bound.reached == pytest.approx(least / us)


def test_one_thread_has_its_share_of_the_arithmetic() -> None:
    assert bound_of(call(1e8, 0.0), 4000.0, 1, PEAK).least_us == pytest.approx(2000.0)


def test_nothing_is_said_without_facts_or_peak() -> None:
    assert bound_of(call(1e8, 1e5), 10.0, 2, None).limit is Limit.UNKNOWN
    assert bound_of(CallRecord(place=0, kernel="k"), 10.0, 2, PEAK).limit is Limit.UNKNOWN
    assert bound_of(call(1e8, 1e5), 0.0, 2, PEAK).limit is Limit.UNKNOWN


def test_a_narrower_precision_has_a_peak_of_its_own() -> None:
    record = msgspec.structs.replace(call(1e8, 1e5), precision="bf16")
    assert bound_of(record, 500.0, 2, PEAK).limit is Limit.UNKNOWN
    peak = msgspec.structs.replace(PEAK, narrow_gflops={"bf16": 400.0})
    bound = bound_of(record, 500.0, 2, peak)
    assert (bound.limit, bound.least_us, bound.reached) == (Limit.ARITHMETIC, pytest.approx(250.0), pytest.approx(0.5))
    plain = msgspec.structs.replace(PEAK, narrow_gflops={})
    assert bound_of(record, 2000.0, 2, plain).least_us == pytest.approx(1000.0), "no instructions for it: as in fp32"
