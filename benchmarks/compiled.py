"""Compares networks of `kintune compile` with onnxruntime and OpenVINO, and times the command.

    python benchmarks/compiled.py zoo:mobilenet_v2 models/further/*.onnx [--threads N] [--shape INPUT=DIMxDIM] ...

For each model: the seconds of the command (a new process, no records, with the check of the result), then the latency
of the result beside onnxruntime and OpenVINO.  Each runs in a process of its own, in turns, stopped while the others
run, with the same number of threads.  Nothing else should run meanwhile.  `--untimed` leaves the latencies out.  Raw
results go to `notebook/results/NAME-DATE-TIME.json`, written after each model; `--name` changes the name.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from kintune.core.stage_requests import ValidationContext, ValidationItem
from kintune.hardware.cores import physical_cores
from kintune.models.importer import load
from kintune.models.ref import parse_ref
from kintune.validate.validation import validate_executable

RESULTS = Path(__file__).parents[1] / "notebook/results"
RIVALS = ("onnxruntime", "openvino")


def compile_once(model: str, shapes: list[str], threads: int, directory: Path) -> dict[str, Any]:
    """Compile by the command; returns its seconds, its exit code and its last line."""
    command = [
        sys.executable, "-m", "kintune", "compile", model, "--threads", str(threads), "--quiet",
        *[word for shape in shapes for word in ("--shape", shape)],
        "--records", str(directory / "records.sqlite"), "--output", str(directory / "model.kt"),
        "--json", str(directory / "report.json"), "--log", str(directory / "run.log"),
    ]  # fmt: skip
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - began
    lines = (done.stderr or done.stdout).strip().splitlines() or [""]
    name = model if model.startswith("zoo:") else Path(model).name
    return {"model": name, "seconds": round(seconds, 2), "exit_code": done.returncode, "last_line": lines[-1]}


def race(model: str, shapes: list[str], threads: int, directory: Path) -> dict[str, list[float]]:
    """Latencies in milliseconds, by runtime."""
    source = load(parse_ref(model, shapes))
    item = ValidationItem(
        tuned=str(directory / "model.kt"), onnx=source.onnx_path, exported=source.exported_path, compare=RIVALS
    )
    proof = validate_executable(ValidationContext(threads=threads), item)
    return {name: list(times) for name, times in proof.latency_ms.items()}


def main() -> None:
    """Compile each model and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--shape", action="append", default=[], help="of an input of all models given")
    parser.add_argument("--threads", type=int, default=len(physical_cores()))
    parser.add_argument("--untimed", action="store_true")
    parser.add_argument("--name", default="compiled", help="how the file of results begins")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{options.name}-{datetime.datetime.now():%Y-%m-%d-%H%M}.json"
    for model in options.models:
        with tempfile.TemporaryDirectory() as directory:
            row = compile_once(model, options.shape, options.threads, Path(directory))
            if not row["exit_code"] and not options.untimed:
                row["latency_ms"] = race(model, options.shape, options.threads, Path(directory))
        rows.append(row)
        print(f"{model}: {row['seconds']} s, {row['last_line']}", file=sys.stderr)
        path.write_text(json.dumps({"threads": options.threads, "rows": rows}, indent=1) + "\n")
    print("| model | seconds | compiled ms | " + " | ".join(f"{rival} ms | ratio" for rival in RIVALS) + " |")
    print("|---|---|---|" + "---|---|" * len(RIVALS))
    for row in rows:
        times = row.get("latency_ms", {})
        medians = {name: statistics.median(taken) for name, taken in times.items()}
        ours = medians.get("tuned", float("nan"))
        cells = [f"{medians.get(r, float('nan')):.3g} | {ours / medians.get(r, float('nan')):.2f}" for r in RIVALS]
        print(f"| {row['model']} | {row['seconds']:.1f} | {ours:.3g} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
