"""Runs `kintune tune` once; for other benchmarks in this directory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

__all__ = ["tune"]


def tune(model: str, minutes: float, directory: Path, *options: str) -> dict[str, Any]:
    """Tune once, with further options of the command; returns the report."""
    document = directory / "report.json"
    command = [
        sys.executable, "-m", "kintune", "tune", model, "--minutes", str(minutes), "--fresh",
        "--records", str(directory / "records.sqlite"), "--output", str(directory / "model.kt"),
        "--json", str(document), "--log", str(directory / "run.log"), *options,
    ]  # fmt: skip
    subprocess.run(command, check=True)
    report: dict[str, Any] = json.loads(document.read_text())
    return report
