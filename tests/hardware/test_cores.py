from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kintune.errors import TargetError
from kintune.hardware.cores import choose_cores, physical_cores, pinned_to


def machine(root: Path, siblings: dict[int, str]) -> Path:
    for cpu, listed in siblings.items():
        folder = root / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{listed}\n")
    return root


def test_one_processor_of_each_core(tmp_path: Path) -> None:
    root = machine(tmp_path, {0: "0,4", 1: "1,5", 4: "0,4", 5: "1,5"})
    assert physical_cores([5, 4, 1, 0], root) == (0, 1)


def test_a_core_of_which_only_the_second_processor_is_ours(tmp_path: Path) -> None:
    root = machine(tmp_path, {0: "0,4", 1: "1,5", 4: "0,4", 5: "1,5"})
    assert physical_cores([1, 4], root) == (1, 4)


def test_processors_that_say_nothing_count_each(tmp_path: Path) -> None:
    assert physical_cores([2, 3], tmp_path) == (2, 3)


def test_zero_threads_are_all_cores_and_too_many_are_refused() -> None:
    cores = physical_cores()
    assert choose_cores(0) == cores
    assert choose_cores(1) == cores[:1]
    for threads in (-1, len(cores) + 1):
        with pytest.raises(TargetError, match=f"threads={threads}.*{len(cores)} physical cores"):
            choose_cores(threads)


def test_the_pin_is_undone_even_after_an_error() -> None:
    before = os.sched_getaffinity(0)
    core = min(before)

    def fail_while_pinned() -> None:
        with pinned_to(core):
            assert os.sched_getaffinity(0) == {core}
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_while_pinned()
    assert os.sched_getaffinity(0) == before


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
