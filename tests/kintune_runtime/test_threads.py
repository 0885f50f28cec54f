"""Models and contexts in many threads of a program in C: plainly, and under the sanitizers."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import msgspec
import numpy as np
import pytest

from kintune.core.execution_plan import KernelCall
from tests.kintune_runtime.test_stress import INCLUDE, NATIVE
from tests.support.toy_model import adding, planned, write_model

THREADS = Path(__file__).with_name("threads.c")


def write_gathering(path: Path, count: int) -> Path:
    """Two calls, each of which turns the order of elements around, by indices that are weights."""
    shape = (count,)
    plan = msgspec.structs.replace(
        adding(count),
        tensors=(
            planned("input", 0, shape),
            planned("weights", 0, shape, "int64"),
            planned("arena", 0, shape),
            planned("output", 0, shape),
        ),
        operations=(KernelCall("gather", (0, 1, 2)), KernelCall("gather", (2, 1, 3))),
    )
    return write_model(path, [plan], [np.arange(count, dtype=np.int64)[::-1].copy()])


def in_c(folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    program = folder / "threads"
    sources = [THREADS, *(path for path in sorted(NATIVE.glob("*.c")) if "onnx" not in path.name)]
    command = ["cc", "-std=gnu11", "-g", "-O1", "-pthread", "-Wall", "-Wextra", "-Werror", *flags, "-I", INCLUDE]
    subprocess.run([*map(str, command), "-o", str(program), *map(str, sources), "-ldl"], check=True)
    files = [write_model(folder / "adding.kt"), write_gathering(folder / "gathering.kt", 1000)]
    last = ["without forks"] if flags else []  # the sanitizers' own locks are not those of a child
    # Of two libraries at one address, one after the other, it sees neither the loader's mmap nor its munmap.
    (folder / "suppressions").write_text("race:^set_slots$\n")
    thread = f"halt_on_error=1:suppressions={folder / 'suppressions'}"
    environment = {**os.environ, "TSAN_OPTIONS": thread, "ASAN_OPTIONS": "detect_leaks=1"}
    command = [str(each) for each in (program, *files, folder, *last)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_models_are_opened_and_closed_while_others_run(tmp_path: Path) -> None:
    done = in_c(tmp_path)
    assert done.stdout == "done\n", done.stderr[-3000:]


@pytest.mark.slow
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_the_sanitizers_find_nothing(tmp_path: Path, sanitizer: str) -> None:
    done = in_c(tmp_path, f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all")
    assert done.stdout == "done\n", done.stderr[-3000:]
