"""A decode step of a language model in fp32 and with weights of 4 and 8 bits, beside onnxruntime on the same files.

    python benchmarks/write_networks.py models/programs
    python benchmarks/decode_weights.py models/programs/gpt2_decode.onnx [--minutes 2] --out FOLDER

All large products of matrices are quantised, the output layer too: blocks of 32 weights with a scale each, as
`kintune tune --weights` makes them.  The file of each width, and the one in fp32, are tuned cold.  Then all take turns,
each in a process of its own that is stopped meanwhile, with the same number of threads.  onnxruntime also runs files
that let it round data to bytes (`accuracy_level` 4), which Kintune never does.  The error is the norm of the
difference to the file in fp32 over the norm of its output, both run by onnxruntime.  Nothing else should run.
Results go to FOLDER/decode_weights.json.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from contestants import Contestant, in_turns
from one_run import tune

from kintune.hardware.cores import physical_cores
from kintune.hardware.cpu import inspect_machine
from kintune.models.quantisation.weights import WeightQuantiser
from kintune.runtime.inputs import draw_inputs
from kintune.runtime.package import read_manifest

_BITS = (4, 8)


def main() -> None:
    """Quantises, tunes, and lets all take turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    files = {"fp32": options.model} | {f"{bits} bits": quantised(options.model, bits, options.out) for bits in _BITS}
    tuned = {
        name: tuned_once(file, options.minutes, options.out / name.replace(" ", "-")) for name, file in files.items()
    }
    rival = files | {f"{bits} bits, bytes": rounding(files[f"{bits} bits"]) for bits in _BITS}
    arrays = dict(draw_inputs(read_manifest(tuned["fp32"]).inputs, 0))
    inputs = options.out / "inputs.npz"
    np.savez(inputs, allow_pickle=False, **arrays)
    threads = len(physical_cores())
    with ExitStack() as processes:
        contestants = {
            f"{kind}, {name}": processes.enter_context(Contestant(kind, file, inputs, threads))
            for kind, found in (("kintune", tuned), ("onnxruntime", rival))
            for name, file in found.items()
        }
        times = in_turns(contestants)
    facts = {
        "model": options.model.name,
        "cpu": inspect_machine().cpu,
        "date": datetime.date.today().isoformat(),
        "threads": threads,
        "minutes": options.minutes,
        "errors": {name: error(options.model, file, arrays) for name, file in rival.items()},
        "median_ms": {name: statistics.median(each) for name, each in times.items()},
        "medians_ms": times,
    }
    (options.out / "decode_weights.json").write_text(json.dumps(facts, indent=1) + "\n")
    ours = facts["median_ms"]
    for name, each in times.items():
        print(f"{name}: {ours[name]:.2f} ms ({min(each):.2f} to {max(each):.2f})")
    for name in files:
        against = (ours["kintune, fp32"], ours[f"onnxruntime, {name}"])
        print(
            name, *(f"{ours[f'kintune, {name}'] / other:.2f}" for other in against), "of Kintune fp32, of onnxruntime"
        )


def quantised(model: Path, bits: int, folder: Path) -> Path:
    """The file with the weights of all large products in `bits` bits."""
    written = folder / f"{model.stem}_{bits}.onnx"
    quantiser = WeightQuantiser(model, bits)
    quantiser.save([layer.name for layer in quantiser.layers], written)
    return written


def rounding(file: Path) -> Path:
    """The same file, except that onnxruntime may round the data of these products to bytes."""
    written = file.with_stem(f"{file.stem}_bytes")
    model = onnx.load(file)
    for node in model.graph.node:
        if node.op_type == "MatMulNBits":
            node.attribute.append(onnx.helper.make_attribute("accuracy_level", 4))
    onnx.save(model, written)
    return written


def tuned_once(file: Path, minutes: float, folder: Path) -> Path:
    """What tuning makes of a file; a file that is there already is taken."""
    made = folder / "model.kt"
    if not made.exists():
        folder.mkdir(exist_ok=True)
        tune(str(file), minutes, folder)
    return made


def error(model: Path, other: Path, arrays: dict[str, Any]) -> float:
    """The error of a file in onnxruntime: norm of the difference over that of the fp32 output, the worst output."""
    import onnxruntime

    found = []
    for path in (model, other):
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        found.append(session.run(None, {each.name: arrays[each.name] for each in session.get_inputs()}))
    pairs = zip(*found, strict=True)
    return max(float(np.linalg.norm(b - a) / np.linalg.norm(a)) for a, b in pairs)


if __name__ == "__main__":
    main()
