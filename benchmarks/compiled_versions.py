"""Times networks as two source trees compile them, in turns.

    git worktree add ../before COMMIT
    python benchmarks/compiled_versions.py --before ../before --out FILE.json \
        models/exports/segformer.onnx models/packages/nudenet.onnx@images=1x3x320x320

Shapes follow a model after `@`, separated by commas.  Each tree compiles the model without records, as the first
program of each rule makes it.  Both results are opened in one process and run in rounds of three runs each, one after
the other.  A line has the median milliseconds of each, the median of the ratios of rounds, and the norm of the
difference of the outputs over their norm.  Nothing else should run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kintune.hardware.cpu import inspect_machine
from kintune.runtime.inputs import draw_inputs
from kintune_runtime import Executable

ROOT = Path(__file__).parent.parent
RUNS = 3
LEAST_ROUNDS = 10


class Timed(NamedTuple):
    """The seconds of each round's runs by tree, and how far the outputs differ."""

    before: list[float]
    after: list[float]
    difference: float


def compiled(tree: Path, model: Path, shapes: list[str], target: Path) -> Path:
    """The executable that a source tree compiles.

    Raises:
        subprocess.CalledProcessError: it compiles none.
    """
    paths = os.pathsep.join(str((tree / part).resolve()) for part in ("src", "runtime/src"))
    command = [sys.executable, "-m", "kintune", "compile", str(model), "-o", str(target), "-q"]
    command += [word for shape in shapes for word in ("--shape", shape)]
    with tempfile.TemporaryDirectory() as empty:
        environment = {**os.environ, "PYTHONPATH": paths, "KINTUNE_RECORDS": str(Path(empty) / "records.sqlite")}
        subprocess.run(command, check=True, env=environment, capture_output=True, text=True)
    return target


def timed(before: Path, after: Path, seconds: float) -> Timed:
    """Run both in turns for so many seconds."""
    networks = [Executable(before), Executable(after)]
    inputs = draw_inputs(networks[0].inputs, 0)
    outputs = [list(network.run(inputs).values()) for network in networks]
    difference = max(
        float(np.linalg.norm((one.astype(np.float64) - other).ravel()))
        / max(float(np.linalg.norm(one.astype(np.float64).ravel())), 1e-30)
        for one, other in zip(*outputs, strict=True)
    )
    times: tuple[list[float], list[float]] = ([], [])
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < RUNS * LEAST_ROUNDS:
        for network, found in zip(networks, times, strict=True):
            for _ in range(RUNS):
                begin = time.perf_counter()
                network.run(inputs)
                found.append(time.perf_counter() - begin)
    return Timed(*times, difference)


def rounds_of(times: list[float]) -> list[float]:
    """The seconds of each round."""
    return [sum(times[at : at + RUNS]) for at in range(0, len(times), RUNS)]


def row_of(text: str, before: Path, seconds: float) -> dict[str, Any]:
    """The row of a model, given as the text of the command line: its path, and shapes after `@`."""
    path, _, shapes = text.partition("@")
    bound = shapes.split(",") if shapes else []
    with tempfile.TemporaryDirectory() as folder:
        files = [
            compiled(tree, Path(path), bound, Path(folder) / f"{name}.kt")
            for name, tree in (("before", before), ("after", ROOT))
        ]
        found = timed(files[0], files[1], seconds)
    ratios = [two / one for one, two in zip(rounds_of(found.before), rounds_of(found.after), strict=True)]
    return {
        "model": Path(path).stem,
        "shapes": bound,
        "before_ms": statistics.median(found.before) * 1e3,
        "after_ms": statistics.median(found.after) * 1e3,
        "ratio": statistics.median(ratios),
        "ratio_quartiles": statistics.quantiles(ratios, n=4)[::2],
        "rounds": len(ratios),
        "difference": found.difference,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="+")
    parser.add_argument("--before", type=Path, required=True, help="the other source tree")
    parser.add_argument("--seconds", type=float, default=8.0, help="of a model's runs")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for text in arguments.model:
        row = row_of(text, arguments.before, arguments.seconds)
        rows.append(row)
        print(
            f"{row['model']:20s} {row['before_ms']:9.3f} {row['after_ms']:9.3f} ms  {row['ratio']:.3f}"
            f"  difference {row['difference']:.1e}",
            flush=True,
        )
        document = {"machine": inspect_machine().cpu, "date": time.strftime("%Y-%m-%d"), "rows": rows}
        arguments.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
