"""What isolation costs: the same tuning run with and without `--isolate`, in turns.

    python benchmarks/isolation.py MODEL.onnx [--shape INPUT=DIMxDIM] --trials 200 --rounds 3

Each run has records of its own and the same seed and number of trials.  What is compared is the seconds of the whole
command, of the run as its report has them, and the latency of the result; the ratio is that of the pairs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def main() -> None:
    """Runs the pairs, and prints each and the median ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--shape", action="append", default=[])
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    ratios: dict[str, list[float]] = {"command": [], "run": [], "latency": []}
    for number in range(options.rounds):
        order = (False, True) if number % 2 == 0 else (True, False)
        found = {isolate: _tuned(options, number, isolate=isolate) for isolate in order}
        for what, values in ratios.items():
            values.append(found[True][what] / found[False][what])
        print(f"round {number}: without {found[False]}, with {found[True]}", flush=True)
    for what, values in ratios.items():
        print(f"{what}: {statistics.median(values):.4f} ({min(values):.4f} to {max(values):.4f})")


def _tuned(options: argparse.Namespace, seed: int, *, isolate: bool) -> dict[str, float]:
    """The seconds of one command and of its run, and the latency of its result in milliseconds."""
    with tempfile.TemporaryDirectory(prefix="kintune-benchmark-") as folder:
        report = Path(folder, "report.json")
        command = [
            sys.executable, "-m", "kintune", "tune", str(options.model), "--trials", str(options.trials),
            "--seed", str(seed), *(word for shape in options.shape for word in ("--shape", shape)),
            "--records", str(Path(folder, "records")), "--output", str(Path(folder, "out.kt")), "--json", str(report),
            "--log", str(Path(folder, "log")), "--quiet",
        ]  # fmt: skip
        begun = time.monotonic()
        subprocess.run([*command, *(["--isolate"] if isolate else [])], check=True, stdout=subprocess.DEVNULL)
        seconds = time.monotonic() - begun
        run = json.loads(report.read_text())
    return {"command": seconds, "run": run["seconds"], "latency": run["latency_ms"]["tuned"]}


if __name__ == "__main__":
    main()
