"""How the library of a model's kernels is loaded."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np

import kintune_runtime
from kintune.core.model import Tensor
from tests.support.toy_model import calling, write_model

X = np.linspace(-1, 1, 1000, dtype=np.float32)
W = np.arange(1000, dtype=np.float32)


def write_two(folder: Path) -> Path:
    """A model with a library of its own."""
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", folder / "two.so"], input=b"""
        typedef struct { float *data; } tensor;
        typedef struct { int type, padding; tensor *value; } any;
        int __tvm_ffi_two(void *self, const any *a, int n, any *r) { a[0].value->data[0] = 2; return 0; }
    """, check=True)  # fmt: skip
    library = (folder / "two.so").read_bytes()
    return write_model(folder / "two.kt", [calling("two", [], [Tensor("out", (1,), "float32")])], [], library=library)


def test_models_with_different_kernels_are_open_at_once(tmp_path: Path) -> None:
    """The dynamic loader takes two files of one path for the same library."""
    add = kintune_runtime.open(write_model(tmp_path / "add.kt"))
    two = kintune_runtime.open(write_two(tmp_path))
    assert two.run({})["out"] == [2]
    np.testing.assert_array_equal(add.run(X)["out"], X + W + W)


def test_a_program_may_close_descriptors_of_others(tmp_path: Path) -> None:
    """In a process of its own, which gets their numbers anew: for another model, and for a file."""
    add, two = write_model(tmp_path / "add.kt"), write_two(tmp_path)
    code = f"""
        import os
        import numpy as np
        import kintune_runtime
        add = kintune_runtime.open({str(add)!r})
        mine = [n for n in map(int, os.listdir("/proc/self/fd")) if n > 2]
        os.closerange(3, max(mine) + 1)
        two = kintune_runtime.open({str(two)!r})
        print(two.run({{}})["out"].tolist(), add.run(np.ones(1000, np.float32))["out"][:2].tolist())
        files = [os.open("/dev/null", os.O_RDONLY) for _ in range(max(mine))]
        add.close()
        print(all(os.fstat(file) for file in files))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False)
    assert done.stdout == "[2.0] [1.0, 3.0]\nTrue\n", done.stderr


def test_descriptors_that_are_exhausted_are_an_error_of_the_run(tmp_path: Path) -> None:
    """In a process of its own: none is left for the file; then for its kernels; then to load these."""
    path = write_model(tmp_path / "add.kt")
    code = f"""
        import os, resource
        import kintune_runtime
        kintune_runtime.open({str(path)!r}).close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        held = []
        try:
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            pass
        for _ in range(3):
            try:
                kintune_runtime.open({str(path)!r})
            except kintune_runtime.RunError as error:
                print(error)
            os.close(held.pop())
        print(kintune_runtime.open({str(path)!r}).inputs[0].name)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False)
    kernels = f"{path}: its kernels cannot be loaded: Too many open files"
    assert done.stdout.splitlines() == [f"{path}: Too many open files", kernels, kernels, "x"], done.stderr
