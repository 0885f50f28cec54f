"""Compares tuned networks with onnxruntime, and reports the cost of tuning them.

    python benchmarks/end_to_end.py zoo:resnet18 zoo:mobilenet_v2 --minutes 15

Each model is tuned by the command line, cold (`--fresh`, empty records).  The latencies are those of the validation:
each runtime in a process of its own, in turns, stopped while the others run, with the same number of threads.  Nothing
else should run meanwhile.  Raw results go to `notebook/results/`.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

RESULTS = Path(__file__).parents[1] / "notebook/results"


def tune(model: str, minutes: float, seed: int, directory: Path) -> dict[str, Any]:
    """Tune once; returns the report, with the memory of the front process in MB over time."""
    document = directory / "report.json"
    command = [
        sys.executable, "-m", "kintune", "tune", model, "--minutes", str(minutes), "--seed", str(seed), "--fresh",
        "--records", str(directory / "records.sqlite"), "--output", str(directory / "model.kt"),
        "--json", str(document), "--log", str(directory / "run.log"),
    ]  # fmt: skip
    memory: list[tuple[float, float]] = []
    began = time.monotonic()
    with subprocess.Popen(command) as process:
        front = psutil.Process(process.pid)
        while process.poll() is None:
            try:
                memory.append((round(time.monotonic() - began, 1), round(front.memory_info().rss / 1e6, 1)))
            except psutil.NoSuchProcess:
                break
            time.sleep(5)
    if process.returncode:
        raise SystemExit(f"{model}: tuning failed with exit code {process.returncode}")
    report: dict[str, Any] = json.loads(document.read_text())
    report["front_memory_mb"] = memory
    return report


def numbers(report: dict[str, Any], minutes: float) -> dict[str, float]:
    """The figures of the results table."""
    latency = report["latency_ms"]
    curve = report["curve"]
    final = curve[-1][2]
    early = [row for row in curve if row[0] <= 0.1 * minutes * 60]
    # The last three quarters only: imports and first database pages are loaded at the start.
    memory = [mb for _, mb in report["front_memory_mb"]]
    settled = memory[len(memory) // 4 :] or memory
    return {
        "tuned_ms": latency["tuned"],
        "onnxruntime_ms": latency["onnxruntime"],
        "ratio": latency["tuned"] / latency["onnxruntime"],
        "openvino_ms": latency["openvino"] or float("nan"),
        "untuned_ms": latency["untuned"] or float("nan"),
        "network_over_kernels": latency["tuned"] / report["kernels_ms"],
        "trials": report["trials"],
        "ten_percent_over_final": early[-1][2] / final if early else float("nan"),
        "overhead_percent": 100 * report["overhead_seconds"] / report["seconds"],
        "memory_growth_mb": max(settled) - settled[0],
    }


def main() -> None:
    """Tune each model for each seed and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    options = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    rows: list[tuple[str, int, dict[str, float]]] = []
    for model in options.models:
        for seed in options.seeds:
            with tempfile.TemporaryDirectory() as directory:
                report = tune(model, options.minutes, seed, Path(directory))
            stamp = datetime.date.today().isoformat()
            name = model.removeprefix("zoo:").replace("/", "_")
            for place in ("output", "log"):
                report.pop(place, None)
            (RESULTS / f"end-to-end-{name}-{options.minutes:g}min-seed{seed}-{stamp}.json").write_text(
                json.dumps(report, indent=1) + "\n"
            )
            rows.append((name, seed, numbers(report, options.minutes)))
    titles = list(rows[0][2])
    print("| model | seed | " + " | ".join(titles) + " |")
    print("|---" * (len(titles) + 2) + "|")
    for name, seed, figures in rows:
        print(f"| {name} | {seed} | " + " | ".join(f"{figures[title]:.3g}" for title in titles) + " |")


if __name__ == "__main__":
    main()
