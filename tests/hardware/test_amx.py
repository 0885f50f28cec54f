from __future__ import annotations

import subprocess
import sys

from kintune.hardware.amx import permit_amx
from kintune.hardware.cpu import host_extensions


def test_a_cpu_without_tiles_permits_none() -> None:
    if "amxtile" not in (host_extensions() or ()):
        assert not permit_amx()


def test_it_may_be_asked_for_twice_by_any_process() -> None:
    text = "from kintune.hardware.amx import permit_amx; print(permit_amx(), permit_amx.__wrapped__())"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    first, second = done.stdout.split()
    assert first == second
