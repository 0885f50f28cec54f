"""Exports run by the oldest onnxruntime that this Python can install, and by the newest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import venv
from pathlib import Path

import pytest

import kintune_runtime
from kintune.core.model import Tensor
from kintune.runtime.exports.onnx_operator import LIBRARY_NAME
from tests.support.toy_exports import PROGRAM, export, without_shapes
from tests.support.toy_hybrid import write_toy_hybrid
from tests.support.toy_model import ADDING, calling

RUNS = Path(__file__).with_name("onnxruntime_program.py")
OLDEST = {(3, 10): "1.12.0", (3, 11): "1.15.0", (3, 12): "1.17.0", (3, 13): "1.20.0"}
"""Python -> the oldest onnxruntime that there is for it."""

FAILING = calling("fail", (Tensor("x", (1,), "float32"),), (Tensor("y", (1,), "float32"),))
SAID = "kernel fail: ValueError: argument 0 has three legs"


def numbers(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def installed(home: Path, *packages: str) -> Path:
    """A new environment with these packages alone; returns its Python."""
    venv.create(home, with_pip=True)
    python = home / "bin" / "python"
    command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "1", *packages]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"pip cannot install {' '.join(packages)}: {done.stderr.strip().splitlines()[-1]}")
    return python


@pytest.mark.slow
@pytest.mark.parametrize("which", ["oldest", "newest"])
def test_a_version_runs_exports(tmp_path: Path, which: str) -> None:
    oldest = OLDEST[sys.version_info[:2]]
    if which == "newest":
        packages = ["onnxruntime"]
    else:  # what was built before numpy 2 does not run with it
        packages = [f"onnxruntime=={oldest}", "numpy<2" if numbers(oldest) < (1, 19) else "numpy"]
    python = installed(tmp_path / "environment", *packages)
    path = export(tmp_path / "one", ADDING)
    paths = [path, export(tmp_path / "two", ADDING, digest="2" * 32), export(tmp_path / "three", FAILING)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(each) for each in (python, RUNS, *paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["version"] == oldest) == (which == "oldest")
    assert told["right"] == 400
    if numbers(told["version"]) >= (1, 17):
        assert SAID in told["failed"]
        assert "kintune:" not in done.stderr
    else:
        assert (told["failed"], done.stderr) == ("[None]", f"kintune: {SAID}\n")
    run_partly(python, write_toy_hybrid(tmp_path))
    if which == "newest":
        run_program(tmp_path, path)


def run_partly(python: Path, path: Path) -> None:
    """The runtime in Python runs what runs partly in onnxruntime."""
    code = """
        import sys
        import numpy as np
        import kintune_runtime
        x = np.ones(1000, np.float32)
        with kintune_runtime.open(sys.argv[1]) as model:
            for threads in (0, 1, 2, 3):
                print(model.run(x, threads=threads)["out"][:3].tolist())
            print([time.kernel for time in model.profile(x)], len(model.evaluate(streams=2, repeats=3).times_ms))
    """
    environment = {**os.environ, "PYTHONPATH": str(Path(kintune_runtime.__file__).parents[1])}
    command = [str(python), "-c", textwrap.dedent(code), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    last = "['first add', 'sum', 'second add'] 6"
    assert done.stdout.splitlines() == [*["[1.0, 6.0, 13.0]"] * 4, last], done.stderr


def run_program(tmp_path: Path, path: Path) -> None:
    """The program in C with the library that the newest onnxruntime has."""
    (library,) = (tmp_path / "environment").glob("lib/python*/site-packages/onnxruntime/capi/libonnxruntime.so.*")
    program = tmp_path / "program"
    subprocess.run(["cc", "-std=gnu11", "-pthread", "-o", str(program), str(PROGRAM), "-ldl"], check=True)
    command = [str(each) for each in (program, library, path.with_name(LIBRARY_NAME), without_shapes(path))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "done"), done.stderr
