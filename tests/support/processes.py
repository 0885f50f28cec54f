"""What the kernel says of processes that tests have started or killed."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["state_of", "wait_until_gone"]


def state_of(pid: int) -> str:
    """The kernel's letter for a process, empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def wait_until_gone(pid: int) -> None:
    """Return once nothing of the process is left; the test's own time limit bounds it."""
    while state_of(pid) not in ("", "Z"):
        os.sched_yield()
