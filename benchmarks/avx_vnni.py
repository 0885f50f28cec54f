"""Networks in int8 on a CPU that is told to have AVX-VNNI and no AVX-512, beside OpenVINO under the same limit.

    python benchmarks/avx_vnni.py zoo:resnet50 zoo:mobilenet_v2 --minutes 2 --threads 2 --out FOLDER

It stands for processors of desktops, whose vectors have 256 bits.  The CPU must have AVX-VNNI.  Kintune compiles for
x86-64-v3 with AVX-VNNI; OpenVINO gets ONEDNN_MAX_CPU_ISA=AVX2_VNNI.  onnxruntime has no such limit, so it does not take
part.  All take turns, each in a process of its own.  Kintune quantises layer by layer within an error of 0.02; OpenVINO
runs what onnxruntime's quantiser makes of the model with its usual settings, with the same drawn inputs.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import statistics
from pathlib import Path
from typing import Any

import numpy as np
from contestants import Contestant, in_turns
from one_run import tune

from kintune.hardware.cpu import inspect_machine
from kintune.models.importer import load
from kintune.models.onnx_path import onnx_path_of
from kintune.models.ref import parse_ref
from kintune.runtime.inputs import draw_inputs, write_arrays
from kintune_lab.comparison.quantised import DRAWN, calibration_files, write_quantised

_ERROR = 0.02
_WITHOUT, _WITH = "llvm -mcpu=x86-64-v3", "llvm -mcpu=x86-64-v3 -mattr=+avxvnni"
_LIMIT = {"ONEDNN_MAX_CPU_ISA": "AVX2_VNNI"}


def main() -> None:
    """Tunes, times and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    if "avx_vnni" not in inspect_machine().features:
        parser.error("this CPU has no AVX-VNNI")
    os.environ.update(_LIMIT)
    options.out.mkdir(parents=True, exist_ok=True)
    results = [_measured(name, options.minutes, options.threads, options.out) for name in options.models]
    facts = {"cpu": inspect_machine().cpu, "date": datetime.date.today().isoformat(), "threads": options.threads}
    document = {**facts, "minutes": options.minutes, "models": results}
    (options.out / "avx_vnni.json").write_text(json.dumps(document, indent=1) + "\n")
    for each in results:
        print(each["model"])
        for name, times in each["medians_ms"].items():
            error = f", error {each['errors'][name]:.3f}" if name in each["errors"] else ""
            print(f"  {name}: {each['median_ms'][name]:.3f} ms ({min(times):.3f} to {max(times):.3f}){error}")


def _measured(name: str, minutes: float, threads: int, out: Path) -> dict[str, Any]:
    folder = out / "".join(letter if letter.isalnum() else "_" for letter in name)
    folder.mkdir(exist_ok=True)
    ref = parse_ref(name)
    model, tensors = onnx_path_of(ref), load(ref).inputs
    files = calibration_files(DRAWN, tensors, folder / "calibration", 0)
    quantised, inputs = folder / "quantised.onnx", folder / "inputs.npz"
    if not quantised.exists():
        write_quantised(model, tensors, files, quantised)
    write_arrays(inputs, draw_inputs(tensors, 7))
    limit = ("--no-onnxruntime", "--threads", str(threads), "--target")
    narrow = ("--precision", "int8", "--calibrate", str(folder / "calibration"), "--max-error", str(_ERROR))
    int8 = _tuned(name, minutes, folder / "int8", *limit, _WITH, *narrow)
    fp32 = _tuned(name, minutes, folder / "fp32", *limit, _WITHOUT)
    with contextlib.ExitStack() as stack:
        contestants = {
            title: stack.enter_context(Contestant(kind, file, inputs, threads))
            for title, kind, file in (
                ("Kintune int8", "kintune", int8),
                ("OpenVINO int8", "openvino", quantised),
                ("Kintune fp32", "kintune", fp32),
                ("OpenVINO fp32", "openvino", model),
            )
        }
        times = in_turns(contestants)
    errors = {"Kintune int8": _error(model, int8, inputs), "OpenVINO int8": _error(model, quantised, inputs)}
    medians = {title: statistics.median(each) for title, each in times.items()}
    return {"model": name, "median_ms": medians, "errors": errors, "medians_ms": times}


def _tuned(name: str, minutes: float, folder: Path, *options: str) -> Path:
    """What tuning makes; a result that is there already is taken."""
    made = folder / "model.kt"
    if not made.exists():
        folder.mkdir(exist_ok=True)
        tune(name, minutes, folder, *options)
    return made


def _error(model: Path, other: Path, inputs: Path) -> float:
    """The norm of the difference from onnxruntime's outputs in fp32, over the norm of these; the worst output."""
    import onnxruntime

    import kintune as kt

    with np.load(inputs) as loaded:
        arrays = {key: loaded[key] for key in loaded.files}
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    expected = dict(zip((each.name for each in session.get_outputs()), session.run(None, arrays), strict=True))
    if other.suffix == ".kt":
        found = kt.open(str(other)).run(arrays)
    else:
        again = onnxruntime.InferenceSession(str(other), providers=["CPUExecutionProvider"])
        found = dict(zip(expected, again.run(None, arrays), strict=True))
    return max(float(np.linalg.norm(found[key] - wanted) / np.linalg.norm(wanted)) for key, wanted in expected.items())


if __name__ == "__main__":
    main()
