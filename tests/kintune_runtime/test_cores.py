"""Where a result was tuned for more threads than there are cores, it runs on as many threads as there are cores."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import numpy as np

import kintune_runtime
from kintune.core.model import Tensor
from kintune.hardware.cores import physical_cores
from kintune_runtime.cores import usable_cores
from tests.support.toy_hybrid import X, write_toy_hybrid
from tests.support.toy_model import calling, write_model

Result = TypeVar("Result")


def on_one_core(call: Callable[[], Result]) -> Result:
    """What `call` returns in a thread that may run on one core alone."""

    def pinned() -> Result:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        return call()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(pinned).result()


def width_of(path: Path, threads: int = 0) -> int:
    """How many threads a kernel of the model runs on."""
    with kintune_runtime.open(path) as model:
        return int(model.run(np.zeros(1, np.float32), threads=threads)["out"][0])


def test_siblings_are_one_core(tmp_path: Path) -> None:
    allowed = os.sched_getaffinity(0)
    assert usable_cores(tmp_path) == len(allowed)
    for processor in allowed:
        folder = tmp_path / f"cpu{processor}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text("0-63\n")
    assert usable_cores(tmp_path) == 1
    assert on_one_core(usable_cores) == 1
    assert usable_cores() == len(physical_cores())


def test_kernels_run_on_no_more_threads_than_cores_unless_that_is_asked_for(tmp_path: Path) -> None:
    cores = len(physical_cores())
    plan = calling("width", [Tensor("x", (1,), "float32")], [Tensor("out", (1,), "float32")])
    path = write_model(tmp_path / "width.kt", [plan], [], threads=cores + 3)
    assert width_of(path) == cores
    assert width_of(path, cores + 2) == cores + 2
    assert on_one_core(lambda: width_of(path)) == 1
    with kintune_runtime.open(path) as model:
        assert isinstance(model, kintune_runtime.Executable)
        assert model.variant.threads == cores + 3


def test_what_runs_partly_in_onnxruntime_has_no_more_threads_than_cores_either(tmp_path: Path) -> None:
    path = write_toy_hybrid(tmp_path)

    def threads() -> int:
        with kintune_runtime.open(path) as model:
            assert isinstance(model, kintune_runtime.HybridExecutable)
            model.run(X)
            return int(model._session(0).get_session_options().intra_op_num_threads)

    assert threads() == min(2, len(physical_cores()))
    assert on_one_core(threads) == 1
