from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

PROGRAM = """
import sys, time
from kintune.service.parent_watch import hold
hold(sys.argv[1:])
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
