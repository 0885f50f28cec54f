from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.tvm

SCRIPT = """
from kintune.compiler.space.generator import load_intrinsics
load_intrinsics({machine!r})
load_intrinsics({machine!r})
import tvm.s_tir.tensor_intrin, sys
from tvm.s_tir import TensorIntrin
TensorIntrin.get({intrinsic!r})
assert not any(name in sys.modules for name in {others!r})
import tvm.s_tir.tensor_intrin.dot_product_common
"""


@pytest.mark.parametrize(
    ("machine", "intrinsic", "others"),
    [
        ("x86_64", "dot_16x4_vnni", ("cuda", "arm_cpu", "rocm", "hexagon", "riscv_cpu")),
        ("aarch64", "dot_4x4_i8i8s32_sdot", ("cuda", "x86", "rocm", "hexagon", "riscv_cpu")),
    ],
)
def test_only_those_of_one_architecture_are_parsed(machine: str, intrinsic: str, others: tuple[str, ...]) -> None:
    """In a process of its own: what is registered stays registered."""
    modules = tuple(f"tvm.s_tir.tensor_intrin.{name}" for name in others)
    script = SCRIPT.format(machine=machine, intrinsic=intrinsic, others=modules)
    subprocess.run([sys.executable, "-c", script], check=True)


FOR_A_BOARD = """
import numpy as np
import tvm
from tvm import te
from kintune.compiler.space.replay import apply_candidate
from kintune.compiler.space.sketches import generate_sketches
from kintune.search.evolve import draw
from kintune.search.sketch_program import program_of

here = tvm.target.Target({"kind": "llvm", "mcpu": "core-avx2", "num-cores": 2})
board = tvm.target.Target({"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a76", "num-cores": 4})
a, b = te.placeholder((8, 16), name="a"), te.placeholder((16, 8), name="b")
k = te.reduce_axis((0, 16), name="k")
c = te.compute((8, 8), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
module = tvm.IRModule({"main": te.create_prim_func([a, b, c]).with_attr("global_symbol", "main")})
assert generate_sketches("w", module, here)
ruled = [sketch for sketch in generate_sketches("w", module, board) if not program_of(sketch)]
assert ruled
random = np.random.default_rng(1)
assert all("main" in apply_candidate(module, each, draw(each, random), board) for each in ruled)
"""


def test_programs_for_a_board_are_made_beside_those_for_this_machine() -> None:
    """Rules for a CPU with products of bytes need its intrinsics."""
    subprocess.run([sys.executable, "-c", FOR_A_BOARD], check=True)


AT_ONCE = """
import importlib, threading, time
from kintune.compiler.space.generator import load_intrinsics
from tvm.s_tir import TensorIntrin
import_module, begun, found = importlib.import_module, threading.Event(), []
def slowly(name):
    begun.set()
    time.sleep(0.5)
    return import_module(name)
def load():
    load_intrinsics("x86_64")
    found.append(TensorIntrin.get("dot_16x4_vnni"))
importlib.import_module = slowly
first = threading.Thread(target=load)
first.start()
assert begun.wait(60)
load()
first.join()
assert len(found) == 2
"""


def test_whoever_comes_while_they_are_registered_waits() -> None:
    """A job that is gone on with replays on several threads before anything else."""
    subprocess.run([sys.executable, "-c", AT_ONCE], check=True)
