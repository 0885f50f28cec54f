from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.core.measurement_protocol import MeasurementProtocol
from kintune.errors import DeviceError

pytestmark = pytest.mark.tvm

COUNT = "static int64_t runs; values(out)[0] = ++runs;"


@pytest.fixture
def kernel() -> Callable[[str], Any]:
    """Loads a kernel of two inputs and an output from the body of its C function."""
    from kintune.runtime.artifact import load_artifact
    from tests.support.poison import compile_kernel

    return lambda body: load_artifact(compile_kernel(body))


class FlushLog:
    """A backend that notes the flushes of a timer, and of what."""

    def __init__(self) -> None:
        import tvm

        self.device = tvm.cpu()
        self.stores_per_s = 1e12
        self.loads_late = False
        self.flushed: list[tuple[Any, ...]] = []
        self.read_back: list[tuple[Any, ...]] = []

    def buffer(self, shape: tuple[int, ...], dtype: str) -> Any:
        raise NotImplementedError

    def flush_to_memory(self, *weights: Any) -> None:
        self.flushed.append(weights)

    def flush_to_last_level(self, others: Sequence[Any]) -> None:
        self.read_back.append(tuple(others))

    def finish(self) -> None:
        pass


class FakeModule:
    """A module whose kernel takes `durations` seconds, one after the other, by a clock of its own."""

    def __init__(self, *durations: float) -> None:
        self.left = list(durations)
        self.now = 0.0
        self.batches: list[int] = []

    def clock(self) -> float:
        return self.now

    def __getitem__(self, _name: str) -> Any:
        return self.run

    def run(self) -> None:
        self.now += self.left.pop(0) if len(self.left) > 1 else self.left[0]

    def time_evaluator(self, _name: str, _device: Any, number: int, repeat: int, f_preproc: str) -> Any:
        assert number == 1
        self.batches.append(repeat)
        results = [float(i + 1) * 1e-6 for i in range(repeat)]
        return lambda *_arguments: SimpleNamespace(results=results)


def arguments(count: int = 3) -> tuple[Any, ...]:
    from kintune.measure.guarded_memory import GuardedMemory

    return tuple(GuardedMemory.of((16,), "float32").tensor((16,), "float32") for _ in range(count))


def measure(
    module: FakeModule, slow_us: float = math.inf, first_us: float = math.inf, **protocol: Any
) -> tuple[float, ...]:
    from kintune.measure.timer import KernelTimer

    watch = KernelTimer(FlushLog(), module.clock)
    return watch.times_us(module, (), (), MeasurementProtocol(threads=1, **protocol), slow_us, first_us)


def test_long_runs_are_timed_one_by_one() -> None:
    assert measure(FakeModule(0.002, 0.004, 0.003), repeats=3) == pytest.approx((2000, 4000, 3000))


def test_repeats_end_once_the_seconds_are_spent() -> None:
    assert len(measure(FakeModule(0.2), repeats=9, max_seconds=0.5)) == 3


def test_a_kernel_over_the_limit_is_timed_once_and_not_warmed_again() -> None:
    module = FakeModule(7.0)
    assert measure(module, max_seconds=0.5) == pytest.approx((7e6,))
    assert module.now == 7.0


def test_warm_ups_come_before_timed_runs() -> None:
    module = FakeModule(*[1.0] * 6, 2.0)
    assert measure(module, warmups=7, max_seconds=0.5) == pytest.approx((2e6,))


def test_a_repeat_of_a_short_kernel_is_the_median_of_as_many_runs_as_are_worth_timing() -> None:
    module = FakeModule(100e-6)
    assert measure(module, repeats=3) == pytest.approx((3, 8, 13))
    assert module.batches == [15]


def test_fewer_runs_are_worth_it_where_the_best_are_timed_again() -> None:
    module = FakeModule(100e-6)
    assert len(measure(module, repeats=2, slow_us=1e6)) == 2
    assert module.batches == [3, 3]


def test_the_shortest_kernels_are_not_run_forever() -> None:
    module = FakeModule(1e-9)
    assert len(measure(module, repeats=5)) == 5
    assert module.batches == [5 * 64]


def test_short_kernels_keep_to_the_seconds_too() -> None:
    assert len(measure(FakeModule(500e-6), repeats=1000, max_seconds=0.01)) == 20


@pytest.mark.parametrize("seconds", [100e-6, 4e-3])
def test_what_is_slow_is_timed_once(seconds: float) -> None:
    assert len(measure(FakeModule(seconds), repeats=5, slow_us=1.0)) == 1
    assert len(measure(FakeModule(seconds), repeats=5, slow_us=6000.0)) == 5


def test_what_is_hardly_better_than_slow_is_timed_twice() -> None:
    assert measure(FakeModule(0.009), repeats=5, slow_us=10_000.0) == pytest.approx((9000, 9000))
    assert len(measure(FakeModule(0.009, 0.0078), repeats=5, slow_us=10_000.0)) == 5  # once it was good
    short = FakeModule(61e-6)
    assert measure(short, repeats=5, slow_us=3.2) == pytest.approx((3, 3))
    assert short.batches == [5, 5]


def test_what_may_just_not_win_is_timed_three_times() -> None:
    assert len(measure(FakeModule(0.0079), repeats=5, slow_us=10_000.0)) == 3
    assert len(measure(FakeModule(0.0079, 0.0078), repeats=5, slow_us=10_000.0)) == 5
    short = FakeModule(150e-6)
    assert measure(short, repeats=5, slow_us=1.89) == pytest.approx((1.5, 1.5, 1.5))
    assert short.batches == [2, 2, 2]


def test_a_long_first_run_counts_for_one_of_these() -> None:
    assert measure(FakeModule(0.009), repeats=5, slow_us=10_000.0, first_us=9100.0) == pytest.approx((9000,))
    assert len(measure(FakeModule(0.0079), repeats=5, slow_us=10_000.0, first_us=9100.0)) == 2
    assert len(measure(FakeModule(0.0078), repeats=5, slow_us=10_000.0, first_us=9100.0)) == 5


def test_a_short_kernel_that_was_timed_once_need_not_be_run_to_know_how_often_it_should() -> None:
    module = FakeModule(310e-6)
    assert measure(module, repeats=5, slow_us=1.2, first_us=320.0) == pytest.approx((1,))
    assert module.batches == [1]
    assert module.now == 0.0


def test_the_first_run_of_the_shortest_kernels_says_nothing() -> None:
    module = FakeModule(61e-6)
    assert len(measure(module, repeats=5, slow_us=3.2, first_us=290.0)) == 2
    assert module.batches == [5, 5]


@pytest.mark.parametrize(
    ("first_s", "slow_us", "enough"),
    [
        (0.5, math.inf, True),  # all the seconds that there are
        (0.49, math.inf, False),
        (0.0023, 2000.0, True),
        (0.0021, 2000.0, False),
        (0.0002, 10.0, False),  # perhaps it only was slow to start
    ],
)
def test_a_first_run_says_enough_when_nothing_could_make_up_for_it(
    first_s: float, slow_us: float, enough: bool
) -> None:
    from kintune.measure.timer import is_decided

    assert is_decided(first_s, MeasurementProtocol(threads=1, max_seconds=0.5), slow_us) is enough


@pytest.mark.parametrize("operands", ["cold", "cool", "warm"])
def test_a_first_run_is_as_cold_as_those_that_are_timed(kernel: Any, operands: str) -> None:
    from kintune.measure.timer import KernelTimer

    log = FlushLog()
    x, w, out = arguments()
    assert KernelTimer(log).run(kernel(COUNT), (x, w, out), (w,), MeasurementProtocol(threads=1, operands=operands)) > 0
    assert log.flushed == ([(w,)] if operands == "cold" else [])
    assert log.read_back == ([(x, out)] if operands == "cool" else [])


@pytest.mark.parametrize("long", [False, True])
def test_every_timed_run_finds_the_weights_flushed_once(kernel: Any, long: bool) -> None:
    from kintune.measure.timer import KernelTimer

    ticks = itertools.count()
    log = FlushLog()
    timer = KernelTimer(log, (lambda: float(next(ticks))) if long else time.perf_counter)
    x, w, out = arguments()
    protocol = MeasurementProtocol(threads=1, repeats=3, max_seconds=100)
    assert len(timer.times_us(kernel(COUNT), (x, w, out), (w,), protocol)) == 3
    runs = int(out.numpy()[0])
    assert all(weights == (w,) for weights in log.flushed)
    assert runs - 1 + long == len(log.flushed)  # the runtime runs short kernels once, untimed, before it times them


@pytest.mark.parametrize("weights", [0, 1])
def test_nothing_is_flushed_for_warm_operands_or_without_weights(kernel: Any, weights: int) -> None:
    from kintune.measure.timer import KernelTimer

    log = FlushLog()
    timer = KernelTimer(log)
    operands = arguments()
    for named in ("warm",) if weights else ("cold", "cool"):
        protocol = MeasurementProtocol(threads=1, operands=named)
        assert len(timer.times_us(kernel(COUNT), operands, operands[1 : 1 + weights], protocol)) == protocol.repeats
    assert log.flushed == log.read_back == []


@given(st.floats() | st.floats(0, 1e6), st.integers(1, 1 << 40), st.integers(1, 64))
def test_a_plausible_time_is_positive_finite_and_allows_for_the_stores(t: float, nbytes: int, threads: int) -> None:
    from kintune.measure.timer import check_plausible

    least_us = max(0.001, nbytes / (1e6 * threads))
    if math.isfinite(t) and t > least_us * (1 + 1e-9):
        check_plausible((1.0e9, t), nbytes, threads * 1e12)
    elif not t >= least_us * (1 - 1e-9) or math.isinf(t):
        with pytest.raises(DeviceError, match=r"^zero time: "):
            check_plausible((1.0e9, t), nbytes, threads * 1e12)


def test_a_kernel_of_nothing_takes_no_time_that_is_believed(kernel: Any) -> None:
    from kintune.measure.timer import KernelTimer, check_plausible

    times = KernelTimer(FlushLog()).times_us(kernel(""), arguments(), (), MeasurementProtocol(threads=1))
    with pytest.raises(DeviceError, match="zero time"):
        check_plausible(times, 1 << 40, 1e12)


def test_a_run_is_over_when_the_device_is_done() -> None:
    from kintune.measure.timer import KernelTimer

    class Slow(FlushLog):
        def finish(self) -> None:
            module.now += 3.0

    module = FakeModule(1.0)
    assert KernelTimer(Slow(), module.clock).run(module, (), (), MeasurementProtocol(threads=1)) == pytest.approx(4.0)
