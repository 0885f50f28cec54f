from __future__ import annotations

from kintune.service.job_listing import PastJobs
from kintune.service.portal.outlook import describe_outlook


def test_earlier_jobs_foretell_time_and_gain() -> None:
    past = PastJobs(tuple(60.0 * minutes for minutes in range(1, 12)), (0.7, 0.8, 0.9, 1.0))
    assert describe_outlook(past, 0, 0.0, 3) == [
        "Forecast: 2 min to 10 min, from 11 jobs here.",
        "Earlier results have 0.73 to 0.97 of the latency of the fastest other runtime.",
    ]


def test_nothing_is_foretold_from_too_little() -> None:
    (line,) = describe_outlook(PastJobs((60.0,), ()), 1, 30.0, 3)
    assert line.startswith("Forecast: none yet")


def test_those_ahead_are_counted() -> None:
    assert describe_outlook(PastJobs((), ()), 4, 90.0, 3)[-1] == "4 jobs ahead of it: it waits for 30 min at most."
