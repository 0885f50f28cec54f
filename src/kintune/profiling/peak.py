"""The machine's peak, measured in a process of its own, so that the compiler's threads do not disturb a profile."""

from __future__ import annotations

import os
import subprocess
import sys

import msgspec

from kintune.core.device import Peak

__all__ = ["measure_peak_apart"]

_PROCESS = "kintune.profiling.peak_process"
_SECONDS = 120.0


def measure_peak_apart(target: str, threads: int) -> Peak | None:
    """Starts the process and waits for it; None where it fails, as without the compiler.

    `target` is a canonical target (JSON) for this machine.
    """
    environment = {**os.environ, "TVM_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, "-m", _PROCESS, target, str(threads)]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, timeout=_SECONDS, check=True)
        return msgspec.json.decode(done.stdout.strip().splitlines()[-1], type=Peak)
    except (subprocess.SubprocessError, OSError, IndexError, msgspec.DecodeError):
        return None
