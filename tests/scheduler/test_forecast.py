from __future__ import annotations

import pytest

from kintune.core.stage import Demand, Stage
from kintune.scheduler.forecast import Forecast
from kintune.scheduler.resources import Device, Host


def stage(job: str, key: str, demand: Demand = Demand(cores=1)) -> Stage:  # noqa: B008
    return Stage("s", job, key, demand, duration_key=key)


@pytest.fixture
def outlook() -> Forecast:
    outlook = Forecast()
    outlook.count(Host("h", 4, 0), 1)
    for n in range(2):
        outlook.count(Device(f"g{n}", "gpu"), 1)
    outlook.add("a")
    outlook.add("b")
    return outlook


def learn(outlook: Forecast) -> None:
    """A build takes ten seconds on two cores, a profile thirty on a device."""
    for name, demand, seconds in (("build", Demand(cores=2), 10.0), ("profile", Demand(device="gpu"), 30.0)):
        outlook.ask(stage("b", name, demand))
        outlook.done(stage("b", name, demand), seconds)


def test_what_lies_ahead_is_counts_times_durations(outlook: Forecast) -> None:
    learn(outlook)
    outlook.expect("a", {"build": 3, "profile": 2}, {})
    assert outlook.ahead_s("a") == 90.0
    outlook.done(stage("a", "build"), 10.0)
    assert outlook.ahead_s("a") == 80.0
    assert outlook.had_s("a") == 10.0


def test_a_job_that_says_nothing_has_as_much_ahead_as_it_had(outlook: Forecast) -> None:
    learn(outlook)
    assert not outlook.told("b")
    assert outlook.ahead_s("b") == 40.0


def test_a_key_never_seen_takes_as_long_as_the_others(outlook: Forecast) -> None:
    learn(outlook)
    outlook.expect("a", {"new": 1}, {})
    assert outlook.ahead_s("a") == 20.0


def test_the_busiest_resource_is_found_by_cores_and_devices(outlook: Forecast) -> None:
    learn(outlook)
    outlook.expect("a", {"build": 8}, {})
    assert outlook.busiest_s() == pytest.approx(8 * 2 * 10 / 4)
    outlook.expect("a", {"build": 8, "profile": 4}, {})
    assert outlook.busiest_s() == pytest.approx(4 * 30 / 2)
    outlook.count(Device("g0", "gpu"), -1)
    assert outlook.busiest_s() == pytest.approx(4 * 30)


def test_who_is_gone_has_nothing_ahead(outlook: Forecast) -> None:
    learn(outlook)
    outlook.expect("a", {"build": 8}, {})
    outlook.forget("a")
    outlook.expect("b", {"profile": 1}, {})
    assert outlook.busiest_s() == pytest.approx(15.0)


def test_stages_whose_key_was_never_seen_count_as_the_others(outlook: Forecast) -> None:
    learn(outlook)
    outlook.expect("a", {"new": 6}, {})
    assert outlook.busiest_s() == 0.0  # nobody knows what they need
    outlook.ask(stage("a", "new", Demand(device="gpu")))
    assert outlook.busiest_s() == pytest.approx(6 * 20 / 2)
    outlook.done(stage("a", "new", Demand(device="gpu")), 2.0)
    assert outlook.busiest_s() == pytest.approx(5 * 2 / 2)


def test_a_key_never_seen_takes_as_long_as_its_job_says(outlook: Forecast) -> None:
    learn(outlook)
    outlook.expect("a", {"new": 6}, {"new": 50.0})
    assert outlook.ahead_s("a") == 300.0
    assert outlook.busiest_s() == 0.0  # nobody knows what they need
    outlook.ask(stage("a", "new", Demand(device="gpu")))
    assert outlook.busiest_s() == pytest.approx(6 * 50 / 2)
    outlook.expect("b", {"new": 1}, {"new": 40.0})
    assert outlook.ahead_s("a") == 240.0
    assert outlook.busiest_s() == pytest.approx(7 * 40 / 2)


def test_what_was_seen_counts_more_than_what_is_said(outlook: Forecast) -> None:
    learn(outlook)
    outlook.expect("a", {"new": 2}, {"new": 50.0, "build": 99.0})
    outlook.ask(stage("a", "new", Demand(device="gpu")))
    outlook.done(stage("a", "new", Demand(device="gpu")), 8.0)
    outlook.expect("b", {"new": 3, "build": 1}, {"new": 60.0})
    assert outlook.ahead_s("a") == 8.0
    assert outlook.ahead_s("b") == 3 * 8 + 10
    assert outlook.busiest_s() == pytest.approx(4 * 8 / 2)
    for job in ("a", "b"):
        outlook.forget(job)
    assert outlook.busiest_s() == pytest.approx(0.0)
