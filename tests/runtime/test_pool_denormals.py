from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.tvm

SCRIPT = """
import threading

import numpy as np
import tvm
from tvm.script import tirx as T

from kintune.measure.flush import compile_function
from kintune.runtime.pool_denormals import set_pool_denormals
from kintune_runtime.denormals import Flushing


@T.prim_func(s_tir=True, private=True)
def double(data: T.Buffer((64, 16), "float32"), out: T.Buffer((64, 16), "float32")):
    for part in T.parallel(64):
        for i in T.serial(16):
            out[part, i] = data[part, i] + data[part, i]


FUNCTION = compile_function(double)
TINY = np.full((64, 16), 1e-40, np.float32)


def use_threads(count):
    tvm.get_global_func("runtime.config_threadpool")(-2, count, [str(core) for core in range(count)])


def flush():
    with Flushing(True):
        set_pool_denormals(True)


def check(history):
    '''Print in how many of 80 runs an element was computed under the wrong setting.'''
    wrong = 0
    for flush in (True, False, True, False):
        with Flushing(flush):
            set_pool_denormals(flush)
            for _ in range(20):
                out = tvm.runtime.tensor(np.ones((64, 16), np.float32))
                FUNCTION(tvm.runtime.tensor(TINY), out)
                bits = out.numpy().view(np.int32)
                wrong += bool(bits.any() if flush else (bits == 0).any())
    assert (TINY * np.float32(1)).any(), "this thread's own state is not back"
    print(history, wrong, tvm.get_global_func("runtime.NumThreads")())


def elsewhere():
    use_threads(2)
    check("another thread's pool")


flush()
use_threads(2)
check("threads that start later")
flush()
other = threading.Thread(target=elsewhere)
other.start()
other.join()
use_threads(1)
flush()
use_threads(2)
check("threads that are used again")
"""


def test_all_threads_of_the_pool_flush_or_keep_denormal_numbers(tmp_path: Path) -> None:
    """In a process of its own, since a pool that was started cannot grow."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    ours = {"PYTHONPATH": os.pathsep.join(sys.path), "TVM_NUM_THREADS": "1", "TVM_BIND_THREADS": "0"}
    done = subprocess.run([sys.executable, script], env={**os.environ, **ours}, capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        "threads that start later 0 2",
        "another thread's pool 0 2",
        "threads that are used again 0 2",
    ], done.stderr
