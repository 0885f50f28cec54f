from __future__ import annotations

import pytest

from kintune.errors import DeviceUnwell
from kintune.measure.health import check_health, undisturbed


def check(*times: float) -> list[float]:
    """Check against 100 us with these measurements; how long was waited between them."""
    waited: list[float] = []
    measured = iter(times)
    check_health(lambda: next(measured), 100.0, 1.5, waited.append)
    assert next(measured, None) is None
    return waited


@pytest.mark.parametrize("us", [70.0, 100.0, 149.0])
def test_what_is_as_it_should_be_is_measured_once(us: float) -> None:
    assert check(us) == []


def test_what_is_disturbed_gets_time_to_calm_down() -> None:
    assert check(300.0, 200.0, 110.0) == [0.2, 1.0]


def test_what_a_type_is_known_by_is_the_least_of_some_times() -> None:
    waited: list[float] = []
    times = iter((300.0, 110.0, 100.0, 250.0, 105.0))
    assert undisturbed(lambda: next(times), waited.append) == 100.0
    assert waited == [0.3] * 4


def test_a_device_that_became_faster_is_told_what_to_do() -> None:
    with pytest.raises(DeviceUnwell, match=r"takes 0\.40 times .*; start the device that defined the type again"):
        check(40.0, 40.0, 40.0, 40.0)


@pytest.mark.parametrize(("us", "ratio"), [(160.0, "1.60"), (50.0, "0.50")])
def test_what_is_not_as_it_should_be_is_unwell(us: float, ratio: str) -> None:
    with pytest.raises(DeviceUnwell, match=f"the reference kernel takes {ratio} times as long"):
        check(us, us, us, us)
