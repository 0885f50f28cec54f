"""An executable and onnxruntime take turns, and each round gives one ratio."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kintune.core.model import Tensor
from kintune.errors import EngineError, InputError
from kintune.validate.baseline_protocol import BaselineContext, BaselineTurn
from kintune.validate.baselines import BaselineModel
from kintune.validate.latency_check import LatencyCheck, check_latency
from kintune.wire.worker_client import WorkerRefused

CONTEXT = BaselineContext("", BaselineModel("net.kt", "net.onnx"), (Tensor("x", (1,), "float32"),), None, 0, 1, (0,))


class Scripted:
    """A process whose runs take these times, one after the other, and the last one for good."""

    def __init__(
        self, name: str, times_ms: Sequence[float], order: list[str], trouble: Exception | None = None
    ) -> None:
        self.name = name
        self._times = list(times_ms)
        self._order = order
        self._trouble = trouble
        self.is_closed = False

    def __enter__(self) -> Scripted:
        return self

    def __exit__(self, *_: object) -> None:
        self.is_closed = True

    def prepare(self, seconds: float) -> None:
        del seconds
        if self._trouble is not None:
            raise self._trouble

    def turn(self, turn: BaselineTurn, seconds: float) -> tuple[float, ...]:
        del turn, seconds
        self._order.append(self.name)
        return (self._times.pop(0) if len(self._times) > 1 else self._times[0],)


class Checked:
    """Checks with scripted processes, in so many rounds."""

    def __init__(
        self, ours: Sequence[float], theirs: Sequence[float], troubles: dict[str, Exception] | None = None
    ) -> None:
        self.order: list[str] = []
        self._times = {"kintune": ours, "onnxruntime": theirs}
        self._troubles = troubles or {}
        self.started: list[Scripted] = []

    def start(self, name: str, context: BaselineContext) -> Scripted:
        assert context.rival == name
        self.started.append(Scripted(name, self._times[name], self.order, self._troubles.get(name)))
        return self.started[-1]

    def check(self, rounds: int, at_most: float = 1.0, slack_ms: float = 0.0) -> LatencyCheck:
        clock = iter(range(1000))
        return check_latency(CONTEXT, rounds, at_most, slack_ms, lambda: float(next(clock)), self.start)  # type: ignore[arg-type]


@pytest.mark.parametrize("unit", [2.0**-10, 1.0, 2.0**10])
def test_the_ratio_is_the_median_of_rounds(unit: float) -> None:
    ours, theirs = [2.0, 2.0, 2.0, 20.0, 2.0, 2.0], [4.0, 4.0, 4.0, 40.0, 1.0, 4.0]
    checked = Checked([unit * ms for ms in ours], [unit * ms for ms in theirs])
    found = checked.check(1, at_most=3.0, slack_ms=2.0 * unit)
    assert (found.ratio, found.rounds) == (0.5, 5)  # the hour in which both were slow does no harm
    assert (found.kintune_ms, found.onnxruntime_ms) == (2.0 * unit, 4.0 * unit)
    assert found.low == 0.5 < found.high < 2.0
    assert found.high == pytest.approx(1.4)  # the quantile 0.9 of four times 0.5, and 2
    assert found.allowed == 3.5


def test_by_default_it_may_take_no_longer() -> None:
    found = check_latency(CONTEXT, 0.0, clock=lambda: 0.0, start=Checked([1.0], [1.0]).start)  # type: ignore[arg-type]
    assert found.allowed == 1.0


def test_each_goes_first_in_turns() -> None:
    checked = Checked([1.0], [1.0])
    checked.check(1)
    assert checked.order[:4] == ["kintune", "onnxruntime", "onnxruntime", "kintune"]
    assert all(process.is_closed for process in checked.started)


def test_more_seconds_are_more_rounds() -> None:
    assert Checked([1.0], [1.0]).check(20).rounds == 24  # the first five read no clock
    assert Checked([1.0], [1.0]).check(900).rounds == 200


@pytest.mark.parametrize(
    ("name", "trouble", "raised"),
    [
        ("onnxruntime", WorkerRefused("is not installed", wrong_input=True), InputError),
        ("onnxruntime", EngineError("it died"), EngineError),
        ("kintune", EngineError("it died"), EngineError),
    ],
)
def test_who_does_not_run_is_named(name: str, trouble: Exception, raised: type[Exception]) -> None:
    checked = Checked([1.0], [1.0], {name: trouble})
    with pytest.raises(raised, match=f"^{name}.*{trouble}"):
        checked.check(1)
    assert all(process.is_closed for process in checked.started)


@pytest.mark.parametrize(
    ("ours", "at_most", "slack_ms", "known", "passed", "rounds"),
    [
        ((1.2,), 1.0, 0.0, True, False, 5),
        ((0.8,), 1.0, 0.0, True, True, 5),
        ((0.8,), 0.7, 0.0, True, False, 5),
        ((1.2,), 1.0, 0.3, True, True, 5),  # onnxruntime takes 1 ms
        ((0.9, 1.1, 0.9, 1.1, 0.9, 0.8), 1.0, 0.0, True, True, 10),  # the second timing tells
        ((0.9, 1.1, 0.9, 1.1, 0.9, 1.2, 0.9, 1.1, 0.9, 1.1), 1.0, 0.0, False, True, 10),
    ],
)
def test_what_the_rounds_do_not_tell_is_timed_once_more_and_passes(
    ours: tuple[float, ...], at_most: float, slack_ms: float, *, known: bool, passed: bool, rounds: int
) -> None:
    found = Checked(ours, [1.0]).check(1, at_most, slack_ms)
    assert (found.is_known, found.passed, found.rounds) == (known, passed, rounds)
