"""How well an error budget holds: a network is tuned with it for many seeds, and tried on inputs that no run has seen.

    python benchmarks/error_budget.py zoo:mobilenet_v2_0.5 --seeds 20 --max-error 0.005 --out FOLDER

Each seed draws its own inputs for the choice and for the check.  The error is measured as `--max-error` is: the norm of
the difference over that of the outputs in fp32 (onnxruntime), the worst output and input counting.  A seed that is done
with the same options is not done again.  Writes FOLDER/error_budget.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np
from one_run import tune

import kintune as kt
from kintune.core.model import ModelRef
from kintune.models.onnx_path import onnx_path_of

_UNSEEN = 1000  # seeds of the inputs that no run has seen begin here


def main() -> None:
    """Tunes for each seed, and tries the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="zoo:NAME or an ONNX file")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=0.3)
    parser.add_argument("--max-error", type=float, default=0.005)
    parser.add_argument("--inputs", type=int, default=8, help="inputs that no run has seen")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    rows = [one_seed(options, seed) for seed in range(options.seeds)]
    errors = [row["unseen"] for row in rows]
    over = [error for error in errors if error > options.max_error]
    facts = {
        "model": options.model,
        "max_error": options.max_error,
        "minutes": options.minutes,
        "inputs": options.inputs,
        "rows": rows,
    }
    (options.out / "error_budget.json").write_text(json.dumps(facts, indent=1) + "\n")
    print(f"{len(over)} of {len(rows)} seeds exceed {options.max_error}; median {statistics.median(errors):.4f}")
    print(f"the largest is {max(errors):.4f}, {max(errors) / options.max_error:.2f} of what is allowed")


def one_seed(options: argparse.Namespace, seed: int) -> dict[str, Any]:
    """What a seed's run says of its error, and the error on inputs that it has not seen."""
    folder = options.out / f"seed-{seed}"
    row = folder / "row.json"
    asked = {name: getattr(options, name) for name in ("model", "minutes", "max_error", "inputs")}
    if row.exists():
        known: dict[str, Any] = json.loads(row.read_text())
        if known.pop("asked", None) == asked:
            return known
    folder.mkdir(exist_ok=True)
    narrow = ("--precision", "auto", "--max-error", str(options.max_error), "--seed", str(seed))
    report = tune(options.model, options.minutes, folder, *narrow)
    precisions = [subgraph["precision"] for subgraph in report["subgraphs"]]
    found = {
        "seed": seed,
        "told": report["norm_error"],
        "narrow": sum(precision != "fp32" for precision in precisions),
        "subgraphs": len(precisions),
        "kept": report["kept_tensors"],
        "unseen": unseen_error(options, folder / "model.kt", seed),
    }
    row.write_text(json.dumps({**found, "asked": asked}))
    (folder / "model.kt").unlink()
    print(found, flush=True)
    return found


def unseen_error(options: argparse.Namespace, file: Path, seed: int) -> float:
    """The error of a result on inputs of its own, against onnxruntime in fp32."""
    import onnxruntime

    executable: Any = kt.open(file)
    name = options.model.removeprefix("zoo:")
    source = (
        ModelRef("zoo", name, name) if options.model.startswith("zoo:") else ModelRef("onnx", name, Path(name).stem)
    )
    session = onnxruntime.InferenceSession(str(onnx_path_of(source)), providers=["CPUExecutionProvider"])
    draw = np.random.default_rng(_UNSEEN + seed)
    worst = 0.0
    for _ in range(options.inputs):
        arrays = {
            each.name: draw.standard_normal(each.shape, np.float32)
            if each.dtype == "float32"
            else draw.integers(0, 2, each.shape).astype(each.dtype)
            for each in executable.inputs
        }
        wanted = session.run(None, {each.name: arrays[each.name] for each in session.get_inputs()})
        found = executable.run(arrays)
        for output, expected in zip(found.values() if isinstance(found, dict) else found, wanted, strict=True):
            error = np.linalg.norm(np.asarray(output) - expected) / np.linalg.norm(expected)
            worst = max(worst, float(error))
    return worst


if __name__ == "__main__":
    main()
