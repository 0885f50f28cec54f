"""The script that compares two installations."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.versions import _RUN
from tests.support.toy_model import write_model


def test_what_it_runs_in_an_installation_prints_a_time(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _RUN, str(write_model(tmp_path / "toy.kt")), "3"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) > 0
