"""The interface in C, from a C program: plainly, and under the sanitizers."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import msgspec
import pytest

from kintune.core.execution_plan import KernelCall
from kintune.core.model import Tensor
from kintune.runtime.merging import merge
from tests.support.toy_hybrid import write_toy_hybrid
from tests.support.toy_model import calling, write_model

NATIVE = Path(__file__).parents[2] / "runtime" / "native"
INCLUDE = NATIVE.parent / "src" / "kintune_runtime" / "include"
STRESS = Path(__file__).with_name("stress.c")


def stress(folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    program, model = folder / "stress", write_model(folder / "toy.kt")
    given = [
        write_model(folder / "other.kt", machine="riscv64"),
        write_model(folder / "this.kt", cpu="a CPU"),
        write_model(folder / "new.kt", isa=["avx1024"]),
    ]
    merged = merge(given, folder / "merged.kt").path
    sources = [str(STRESS), *map(str, sorted(NATIVE.glob("*.c")))]
    command = ["cc", "-std=gnu11", "-g", "-O1", "-pthread", "-Wall", "-Wextra", "-Werror", *flags, "-I", str(INCLUDE)]
    subprocess.run([*command, "-o", str(program), *sources, "-ldl"], check=True)
    environment = {**os.environ, "TSAN_OPTIONS": "halt_on_error=1", "ASAN_OPTIONS": "detect_leaks=1"}
    models = [model, merged, write_toy_hybrid(folder), write_indexed(folder / "indexed.kt")]
    command = [str(each) for each in (program, *models)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def write_indexed(path: Path) -> Path:
    """A model of a number and six indices, which gives the number back."""
    given = Tensor("s", (1,), "float32"), Tensor("ids", (6,), "int64", bounds=(-10, 9))
    plan = calling("sleep", given, [Tensor("out", (1,), "float32")])
    plan = msgspec.structs.replace(plan, operations=(KernelCall("sleep", (0, 2)),))
    return write_model(path, [plan], [])


def test_a_program_in_c_uses_all_of_it(tmp_path: Path) -> None:
    done = stress(tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"


@pytest.mark.slow
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_the_sanitizers_find_nothing(tmp_path: Path, sanitizer: str) -> None:
    done = stress(tmp_path, f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all")
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout == "done\n"
