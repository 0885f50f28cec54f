from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.core.stage import Demand, Stage
from kintune.scheduler.forecast import DurationForecast, Durations
from kintune.scheduler.resources import Device, Host


def stage(job: str, key: str, demand: Demand = Demand(cores=1)) -> Stage:  # noqa: B008
    return Stage("s", job, key, demand, duration_key=key)


@pytest.fixture
def forecast() -> DurationForecast:
    forecast = DurationForecast()
    forecast.count(Host("h", 4, 0), 1)
    for n in range(2):
        forecast.count(Device(f"g{n}", "gpu"), 1)
    forecast.add("a")
    forecast.add("b")
    return forecast


def learn(forecast: DurationForecast) -> None:
    """A build takes ten seconds on two cores, a profile thirty on a device."""
    for name, demand, seconds in (("build", Demand(cores=2), 10.0), ("profile", Demand(device="gpu"), 30.0)):
        forecast.ask(stage("b", name, demand))
        forecast.done(stage("b", name, demand), seconds)


def test_what_lies_ahead_is_counts_times_durations(forecast: DurationForecast) -> None:
    learn(forecast)
    forecast.expect("a", {"build": 3, "profile": 2}, {})
    assert forecast.ahead_s("a") == 90.0
    forecast.done(stage("a", "build"), 10.0)
    assert forecast.ahead_s("a") == 80.0
    assert forecast.had_s("a") == 10.0


def test_a_job_that_says_nothing_has_as_much_ahead_as_it_had(forecast: DurationForecast) -> None:
    learn(forecast)
    assert not forecast.told("b")
    assert forecast.ahead_s("b") == 40.0


def test_a_key_never_seen_takes_as_long_as_the_others(forecast: DurationForecast) -> None:
    learn(forecast)
    forecast.expect("a", {"new": 1}, {})
    assert forecast.ahead_s("a") == 20.0


def test_the_busiest_resource_is_found_by_cores_and_devices(forecast: DurationForecast) -> None:
    learn(forecast)
    forecast.expect("a", {"build": 8}, {})
    assert forecast.busiest_s() == pytest.approx(8 * 2 * 10 / 4)
    forecast.expect("a", {"build": 8, "profile": 4}, {})
    assert forecast.busiest_s() == pytest.approx(4 * 30 / 2)
    forecast.count(Device("g0", "gpu"), -1)
    assert forecast.busiest_s() == pytest.approx(4 * 30)


def test_who_is_gone_has_nothing_ahead(forecast: DurationForecast) -> None:
    learn(forecast)
    forecast.expect("a", {"build": 8}, {})
    forecast.forget("a")
    forecast.expect("b", {"profile": 1}, {})
    assert forecast.busiest_s() == pytest.approx(15.0)


def test_stages_whose_key_was_never_seen_count_as_the_others(forecast: DurationForecast) -> None:
    learn(forecast)
    forecast.expect("a", {"new": 6}, {})
    assert forecast.busiest_s() == 0.0  # nobody knows what they need
    forecast.ask(stage("a", "new", Demand(device="gpu")))
    assert forecast.busiest_s() == pytest.approx(6 * 20 / 2)
    forecast.done(stage("a", "new", Demand(device="gpu")), 2.0)
    assert forecast.busiest_s() == pytest.approx(5 * 2 / 2)


def test_a_key_never_seen_takes_as_long_as_its_job_says(forecast: DurationForecast) -> None:
    learn(forecast)
    forecast.expect("a", {"new": 6}, {"new": 50.0})
    assert forecast.ahead_s("a") == 300.0
    assert forecast.busiest_s() == 0.0  # nobody knows what they need
    forecast.ask(stage("a", "new", Demand(device="gpu")))
    assert forecast.busiest_s() == pytest.approx(6 * 50 / 2)
    forecast.expect("b", {"new": 1}, {"new": 40.0})
    assert forecast.ahead_s("a") == 240.0
    assert forecast.busiest_s() == pytest.approx(7 * 40 / 2)


def test_what_was_seen_counts_more_than_what_is_said(forecast: DurationForecast) -> None:
    learn(forecast)
    forecast.expect("a", {"new": 2}, {"new": 50.0, "build": 99.0})
    forecast.ask(stage("a", "new", Demand(device="gpu")))
    forecast.done(stage("a", "new", Demand(device="gpu")), 8.0)
    forecast.expect("b", {"new": 3, "build": 1}, {"new": 60.0})
    assert forecast.ahead_s("a") == 8.0
    assert forecast.ahead_s("b") == 3 * 8 + 10
    assert forecast.busiest_s() == pytest.approx(4 * 8 / 2)
    for job in ("a", "b"):
        forecast.forget(job)
    assert forecast.busiest_s() == pytest.approx(0.0)


@given(
    ahead=st.dictionaries(st.sampled_from(["build", "profile", "new"]), st.integers(0, 4)),
    done=st.lists(st.sampled_from(["build", "profile"]), max_size=6),
)
def test_each_stage_that_is_done_is_one_less_ahead(ahead: dict[str, int], done: list[str]) -> None:
    """But never less than none, for the job as for the busiest resource."""
    forecast = DurationForecast()
    forecast.count(Host("h", 4, 0), 1)
    forecast.count(Device("g", "gpu"), 1)
    forecast.add("a")
    forecast.add("b")
    assert (forecast.capacity(None), forecast.capacity("gpu"), forecast.capacity("cpu")) == (4, 1, 0)
    learn(forecast)
    seconds = {"build": 10.0, "profile": 30.0}
    demands = {"build": Demand(cores=2), "profile": Demand(cores=3, device="gpu")}  # a device is what it waits for
    forecast.ask(stage("a", "profile", demands["profile"]))
    forecast.expect("a", ahead, {"new": 7.0})
    for key in done:
        forecast.done(stage("a", key, demands[key]), seconds[key])
    left = {key: max(0, count - done.count(key)) for key, count in ahead.items()}
    assert forecast.ahead_s("a") == pytest.approx(sum(n * seconds.get(key, 7.0) for key, n in left.items()))
    assert forecast.had_s("a") == pytest.approx(sum(seconds[key] for key in done))
    busiest = max(left.get("build", 0) * 10.0 * 2 / 4, left.get("profile", 0) * 30.0)
    assert forecast.busiest_s() == pytest.approx(busiest, abs=1e-9)


@given(st.lists(st.floats(0.0, 100.0), min_size=1, max_size=60))
def test_a_duration_is_the_mean_in_which_the_latest_counts_a_twentieth_at_least(seconds: list[float]) -> None:
    durations, mean = Durations(), 0.0
    for number, each in enumerate(seconds, 1):
        durations.learn("a", each)
        mean += (each - mean) * max(1 / number, 0.05)
    assert durations.expected("a") == pytest.approx(mean)
    assert durations.mean == pytest.approx(mean)
    if len(seconds) <= 20:
        assert mean == pytest.approx(sum(seconds) / len(seconds))


@pytest.mark.parametrize(
    ("demand", "busiest_s"), [(Demand(cores=1), 25.0), (Demand(memory_mb=9), 25.0), (Demand(3), 75.0)]
)
def test_a_stage_takes_its_cores_and_one_at_least(forecast: DurationForecast, demand: Demand, busiest_s: float) -> None:
    forecast.ask(stage("b", "own", demand))
    forecast.done(stage("b", "own", demand), 10.0)
    forecast.expect("a", {"own": 10}, {})
    assert forecast.busiest_s() == pytest.approx(busiest_s)


def test_a_kind_counts_only_what_is_expected_of_it() -> None:
    """Stages of known and of unknown duration are added up apart; either may be missing."""
    forecast = DurationForecast()
    assert forecast.busiest_s() == 0.0
    forecast.count(Host("h", 4, 0), 1)
    for name in ("t0", "t1"):
        forecast.count(Device(name, "tpu"), 1)
    forecast.add("a")
    forecast.ask(stage("a", "seen", Demand(device="gpu")))
    forecast.done(stage("a", "seen", Demand(device="gpu")), 30.0)
    forecast.expect("a", {"known": 4}, {"known": 5.0})
    forecast.ask(stage("a", "known"))
    assert forecast.busiest_s() == 5.0
    forecast.expect("a", {"new": 4}, {})
    forecast.ask(stage("a", "new", Demand(device="tpu")))
    assert forecast.busiest_s() == 60.0  # four times the mean, on two devices
