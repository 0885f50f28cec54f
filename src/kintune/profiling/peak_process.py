"""Measures the machine's peak in a process of its own: `python -m kintune.profiling.peak_process TARGET THREADS`.

It needs the compiler, whose threads would disturb what is profiled; what it prints is a `Peak` as JSON.
"""

from __future__ import annotations

import os
import subprocess
import sys

import msgspec

from kintune.core.device import Peak

__all__ = ["main", "measure_peak_apart"]

_SECONDS = 120.0


def measure_peak_apart(target: str, threads: int) -> Peak | None:
    """Starts the process and waits for it; None where it fails, as without the compiler.

    `target` is a canonical target (JSON) for this machine.
    """
    environment = {**os.environ, "TVM_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, "-m", "kintune.profiling.peak_process", target, str(threads)]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, timeout=_SECONDS, check=True)
        return msgspec.json.decode(done.stdout.strip().splitlines()[-1], type=Peak)
    except (subprocess.SubprocessError, OSError, IndexError, msgspec.DecodeError):
        return None


def main(target: str, threads: int) -> None:
    """Measures and prints the peak of so many threads."""
    from kintune.hardware.cores import choose_cores
    from kintune.hardware.cpu import inspect_machine
    from kintune.measure.hardware import host_hardware

    peak = host_hardware(target, choose_cores(threads), inspect_machine()).peak()
    print(msgspec.json.encode(peak).decode())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
