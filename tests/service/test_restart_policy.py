from __future__ import annotations

import os
import signal

import pytest

from kintune.service.restart_policy import RestartPolicy


def lives(comeback: RestartPolicy, code: int, *, lifetime: float, times: int) -> list[float]:
    """How long each start is waited for, when every life ends so."""
    now, waits = 0.0, []
    for _ in range(times):
        comeback.started(now)
        comeback.ended(code, now + lifetime)
        waits.append(comeback.due - now - lifetime)
        now = comeback.due
    return waits


def test_who_cannot_live_is_started_ever_more_rarely_and_then_given_up() -> None:
    comeback = RestartPolicy()
    assert lives(comeback, 1, lifetime=1.0, times=4) == [0.5, 1.0, 2.0, 4.0]
    assert not comeback.hopeless
    lives(comeback, 1, lifetime=1.0, times=1)
    assert comeback.hopeless


@pytest.mark.parametrize("killer", [signal.SIGKILL, signal.SIGTERM])
def test_who_is_killed_comes_back_however_often(killer: signal.Signals) -> None:
    comeback = RestartPolicy()
    assert lives(comeback, -killer, lifetime=1.0, times=100)[-1] <= 1.0
    assert not comeback.hopeless


def test_who_crashes_dies_by_itself() -> None:
    comeback = RestartPolicy()
    lives(comeback, -signal.SIGSEGV, lifetime=1.0, times=5)
    assert comeback.hopeless


def test_who_meets_trouble_that_passes_waits_longer_and_is_never_given_up() -> None:
    comeback = RestartPolicy()
    assert lives(comeback, os.EX_TEMPFAIL, lifetime=1.0, times=50)[-1] == 30.0
    assert not comeback.hopeless


def test_who_has_served_for_a_while_begins_anew() -> None:
    comeback = RestartPolicy()
    lives(comeback, 1, lifetime=1.0, times=4)
    assert lives(comeback, 1, lifetime=100.0, times=100) == [0.5] * 100
    assert not comeback.hopeless


def test_it_never_waits_for_ever() -> None:
    assert max(lives(RestartPolicy(), 1, lifetime=1.0, times=50)) == 30.0
