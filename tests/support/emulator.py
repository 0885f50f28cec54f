"""Programs for aarch64, compiled by ziglang and run by qemu."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

__all__ = ["FEATURES", "FOR_AARCH64", "run_emulated"]

FOR_AARCH64 = [sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-linux-gnu.2.17", "-O1"]
"""The command of the compiler."""

FEATURES = "fp asimd fphp asimdhp asimddp"
"""Of a Cortex-A76, those that a model asks for."""


def run_emulated(
    command: list[str | Path], folder: Path, features: str = FEATURES, cpu: str = "cortex-a76"
) -> subprocess.CompletedProcess[str]:
    """Run a program in the working directory `folder`; there, a system for it is made.  No Python for it is needed.

    The test is skipped where there is no C library for aarch64.
    """
    emulator = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
    libraries = Path(os.environ.get("QEMU_LD_PREFIX", "/usr/aarch64-linux-gnu")) / "lib"  # where Debian has them
    if not (libraries / "ld-linux-aarch64.so.1").exists():
        pytest.skip("no C library for aarch64: apt-get install libc6-arm64-cross")
    system = folder / "system"
    (system / "proc").mkdir(parents=True, exist_ok=True)
    (system / "proc" / "cpuinfo").write_text(f"processor\t: 0\nFeatures\t: {features}\n")
    if not (system / "lib").exists():
        (system / "lib").symlink_to(libraries)
    whole = [str(emulator), "-cpu", cpu, "-L", str(system), *map(str, command)]
    return subprocess.run(whole, cwd=folder, capture_output=True, text=True, check=False)
