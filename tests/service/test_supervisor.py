"""The supervisor: how the parts of a service are started again, and how they end with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from kintune.service.settings import ServiceSettings
from kintune.service.supervisor import RestartPolicy, Supervisor


def read(path: Path) -> ServiceSettings:
    return msgspec.json.decode(path.read_bytes(), type=ServiceSettings)


def test_parts_that_run_apart_keep_their_own_settings(tmp_path: Path) -> None:
    web, orchestrator = (
        ServiceSettings(data=str(tmp_path), port=81),
        ServiceSettings(data=str(tmp_path), device="cpu:1"),
    )
    Supervisor(web, print, ("web",))
    Supervisor(orchestrator, print, ("orchestrator",))
    assert read(tmp_path / "settings-web.json") == web
    assert read(tmp_path / "settings-orchestrator.json") == orchestrator
    assert read(web.file) == orchestrator  # what commands need is the same in both


def lives(restarts: RestartPolicy, code: int, *, lifetime: float, times: int) -> list[float]:
    """How long each start is waited for, when every life ends so."""
    now, waits = 0.0, []
    for _ in range(times):
        restarts.started(now)
        restarts.ended(code, now + lifetime)
        waits.append(restarts.due - now - lifetime)
        now = restarts.due
    return waits


def test_who_cannot_live_is_started_ever_more_rarely_and_then_given_up() -> None:
    restarts = RestartPolicy()
    assert lives(restarts, 1, lifetime=1.0, times=4) == [0.5, 1.0, 2.0, 4.0]
    assert not restarts.failed_too_often
    lives(restarts, 1, lifetime=1.0, times=1)
    assert restarts.failed_too_often


@pytest.mark.parametrize("killer", [signal.SIGKILL, signal.SIGTERM])
def test_who_is_killed_comes_back_however_often(killer: signal.Signals) -> None:
    restarts = RestartPolicy()
    assert lives(restarts, -killer, lifetime=1.0, times=100)[-1] <= 1.0
    assert not restarts.failed_too_often


def test_who_crashes_dies_by_itself() -> None:
    restarts = RestartPolicy()
    lives(restarts, -signal.SIGSEGV, lifetime=1.0, times=5)
    assert restarts.failed_too_often


def test_who_meets_trouble_that_passes_waits_longer_and_is_never_given_up() -> None:
    restarts = RestartPolicy()
    assert lives(restarts, os.EX_TEMPFAIL, lifetime=1.0, times=50)[-1] == 30.0
    assert not restarts.failed_too_often


def test_who_has_served_for_a_while_begins_anew() -> None:
    restarts = RestartPolicy()
    lives(restarts, 1, lifetime=1.0, times=4)
    assert lives(restarts, 1, lifetime=100.0, times=100) == [0.5] * 100
    assert not restarts.failed_too_often


def test_it_never_waits_for_ever() -> None:
    assert max(lives(RestartPolicy(), 1, lifetime=1.0, times=50)) == 30.0


PROGRAM = """
import sys, time
from kintune.service.supervisor import end_with_parent
end_with_parent(sys.argv[1:])
print(flush=True)
time.sleep(60)
"""


def test_who_holds_a_lifeline_ends_when_it_is_let_go() -> None:
    reading, writing = os.pipe()
    command = [sys.executable, "-c", PROGRAM, str(reading)]
    with subprocess.Popen(command, pass_fds=[reading], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        os.close(writing)
        assert process.wait(10) == -signal.SIGTERM
    os.close(reading)


def test_who_was_given_none_lives_on() -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        process.kill()
