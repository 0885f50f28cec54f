"""Times the comparison on extreme inputs beside `kintune compile`, and tells what it finds.

    python benchmarks/extreme_inputs.py zoo:resnet50 models/*.onnx [--shape INPUT=DIMxDIM] [--keep FOLDER]

For each model: the seconds of `kintune compile`, then those of the comparison of its result with the model's own
runtime, without extreme inputs and with them in turns, five times each; the share of the command's time that the
difference of the least ones takes; on how many sets the outputs were compared; and where they are wrong.  With
`--keep`, results lie in a folder, and one that is there is not compiled again.  Shapes of known files come from
`compile_times.py`.  Nothing else should run on the machine.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from compile_times import known_shapes

from kintune.core.stage_requests import ValidationContext, ValidationItem
from kintune.core.stage_results import ValidationResult
from kintune.errors import KintuneError
from kintune.models.ref import parse_ref
from kintune.profiling.timing import read_original
from kintune.runtime.package import read_manifest
from kintune.validate.validation import validate_executable

ROUNDS = 5


def compile_once(model: str, shapes: list[str], output: Path) -> float:
    """Compiles a model by the command, without records; returns the seconds, also where it fails."""
    with tempfile.TemporaryDirectory() as directory:
        options = ["--records", f"{directory}/records.sqlite", "--log", f"{directory}/log", "--output", str(output)]
        words = [word for shape in shapes for word in ("--shape", shape)]
        began = time.monotonic()
        command = [sys.executable, "-m", "kintune", "compile", model, "--quiet", *words, *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"{model}: {((done.stderr or done.stdout).strip().splitlines() or ['?'])[-1]}", flush=True)
        return time.monotonic() - began


def compare(model: str, path: Path, *, extremes: bool) -> tuple[float, ValidationResult]:
    """Compares a result with the model in its own runtime; returns the seconds and what was found."""
    manifest = read_manifest(str(path))
    original = read_original(parse_ref(model), manifest.combinations[0])
    item = ValidationItem(
        str(path), onnx=original.path, constants=original.constants, timed=False, extremes=extremes, seed=0
    )
    began = time.monotonic()
    found = validate_executable(ValidationContext(manifest.threads), item)
    return time.monotonic() - began, found


def main() -> None:
    """Prints a line for each model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--shape", action="append", default=[], help="of an input of all models given")
    parser.add_argument("--keep", type=Path, help="folder for results")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    shapes = known_shapes()
    with tempfile.TemporaryDirectory() as directory:
        for model in options.models:
            name = model.removeprefix("zoo:") if model.startswith("zoo:") else Path(model).stem
            path = (options.keep or Path(directory)) / f"{name}.kt"
            known = path.with_suffix(".seconds")
            if not path.exists():
                compile_s = compile_once(model, options.shape or shapes.get(name, []), path)
                if not path.exists():
                    continue
                known.write_text(str(compile_s))
            compile_s = float(known.read_text())
            try:
                rounds = [(compare(model, path, extremes=False)[0], compare(model, path, extremes=True))
                          for _ in range(options.rounds)]  # fmt: skip
            except KintuneError as error:
                print(f"{model}: {error}", flush=True)
                continue
            plain_s, (with_s, found) = min(each[0] for each in rounds), min((each[1] for each in rounds), key=_seconds)
            took_s = max(0.0, with_s - plain_s)
            print(
                f"{model}: {took_s:.2f} s of {compile_s:.1f} s ({100 * took_s / compile_s:.1f} %), "
                f"{len(found.extremes)} sets right; {found.verdict.value} {found.disagreement}".rstrip(),
                flush=True,
            )


def _seconds(each: tuple[float, ValidationResult]) -> float:
    return each[0]


if __name__ == "__main__":
    main()
