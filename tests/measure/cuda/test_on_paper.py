from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.tvm


@pytest.mark.slow
def test_what_holds_on_every_gpu_holds_on_the_one_on_paper(paper_gpu: dict[str, str]) -> None:
    """In a process of its own, which finds the libraries of that one."""
    suite = Path(__file__).parent / "on_gpu"
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(suite)]
    done = subprocess.run(command, env=paper_gpu, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " skipped" not in done.stdout
