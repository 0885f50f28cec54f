from __future__ import annotations

import os
import subprocess
import sys
import threading

PROGRAM = """
import os, threading
from kintune.hardware.cores import set_realtime_priority
begun, over = threading.Event(), threading.Event()
threading.Thread(target=lambda: (begun.set(), over.wait())).start()
begun.wait()
for urgent in (True, False):
    set_realtime_priority(urgent)
    print(*{os.sched_getscheduler(int(thread)) for thread in os.listdir("/proc/self/task")})
over.set()
"""


def allowed() -> bool:
    """Whether this process may have a thread of real-time priority."""
    may: list[bool] = []

    def attempt() -> None:
        try:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
            may.append(True)
        except PermissionError:
            may.append(False)

    trial = threading.Thread(target=attempt)  # the policy ends with it
    trial.start()
    trial.join()
    return may[0]


def test_all_threads_become_urgent_where_that_is_allowed_and_ordinary_again() -> None:
    said = subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True).stdout.split()
    assert said == [str(os.SCHED_FIFO if allowed() else os.SCHED_OTHER), str(os.SCHED_OTHER)]
