from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kintune.workers.fleet.ownership import is_abandoned, owner


def test_an_owner_is_the_same_for_all_processes_here_but_for_its_number() -> None:
    code = "from kintune.workers.fleet.ownership import owner; print(owner())"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert other.split("-")[0] == owner().split("-")[0]
    assert owner() == f"{owner().split('-')[0]}-{os.getpid()}"


@pytest.mark.parametrize(
    ("name", "now", "later"),
    [
        ("{here}-{me}-x", False, False),
        ("{here}-999999999-x", True, True),
        ("elsewhere-999999999-x", False, True),
        ("{here}-x", False, True),
    ],
)
def test_what_a_dead_process_had_is_abandoned_and_later_what_nobody_here_has(
    tmp_path: Path, name: str, now: bool, later: bool
) -> None:
    path = tmp_path / f"prefix-{name.format(here=owner().split('-')[0], me=os.getpid())}"
    path.mkdir()
    assert is_abandoned(path, "prefix-") is now
    os.utime(path, (1, 1))
    assert is_abandoned(path, "prefix-") is later


def test_what_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        is_abandoned(tmp_path / "prefix-elsewhere-1-x", "prefix-")
