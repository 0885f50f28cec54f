from __future__ import annotations

import pytest

from kintune.service.web.utilisation import SPAN_S, SPANS, Utilisation

NOW = 100 * SPAN_S


def test_stages_at_the_same_time_count_once() -> None:
    found = Utilisation()
    found.began("cpu", NOW - 600.0)
    found.began("cpu", NOW - 500.0)
    found.ended("cpu", NOW - 300.0)
    found.ended("cpu", NOW - 200.0)
    day = found.day(NOW + 1.0)
    assert list(day) == ["cpu"]
    assert len(day["cpu"]) == SPANS
    assert day["cpu"][-2] == pytest.approx(400.0 / SPAN_S)


def test_what_runs_counts_until_now() -> None:
    found = Utilisation()
    found.began("gpu", NOW)
    assert found.day(NOW + 90.0)["gpu"][-1] == pytest.approx(1.0)
    found.stopped(NOW + 90.0)
    assert found.day(NOW + 180.0)["gpu"][-1] == pytest.approx(0.5)


def test_a_day_is_kept_and_no_more() -> None:
    found = Utilisation()
    found.began("cpu", NOW)
    found.ended("cpu", NOW + 3 * SPANS * SPAN_S)
    day = found.day(NOW + 3 * SPANS * SPAN_S + 1.0)["cpu"]
    assert day[:-1] == [pytest.approx(1.0)] * (SPANS - 1)
    assert found.day(NOW + 5 * SPANS * SPAN_S)["cpu"] == [0.0] * SPANS
