"""A process that runs one network with one runtime, for `contestants.py`; stopped while others have their turn.

    python benchmarks/contestant.py kintune|onnxruntime|openvino|operator FILE INPUTS.npz THREADS

It prints `ready`.  Each line of its input is then a number of runs, and is answered by their times in milliseconds,
as JSON.  Inputs lie at multiples of 64 bytes, as the outputs of a step before do.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

_WARM_SECONDS = 0.05
_ALIGNMENT = 64  # bytes


def _aligned(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A copy of an array at a multiple of 64 bytes."""
    memory = np.empty(array.nbytes + _ALIGNMENT, np.uint8)
    begin = -memory.ctypes.data % _ALIGNMENT
    copy: np.ndarray[Any, Any] = memory[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def _kintune(file: str, inputs: Mapping[str, Any], threads: int) -> Callable[[], object]:
    import kintune as kt

    executable = kt.open(file)
    known = {tensor.name for tensor in executable.inputs}
    given = {name: array for name, array in inputs.items() if name in known}
    try:
        executable.run(given, threads=threads)
    except TypeError:  # Kintune before it had a runtime of its own
        return lambda: executable.run(given)
    return lambda: executable.run(given, threads=threads)


def _onnxruntime(file: str, inputs: Mapping[str, Any], threads: int, library: str = "") -> Callable[[], object]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    if library:
        options.register_custom_ops_library(library)
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    known = {each.name for each in session.get_inputs()}
    given = {name: array for name, array in inputs.items() if name in known}
    return lambda: session.run(None, given)


def _openvino(file: str, inputs: Mapping[str, Any], threads: int) -> Callable[[], object]:
    import openvino

    core = openvino.Core()
    settings = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1}
    request = core.compile_model(file, "CPU", {**settings, "INFERENCE_PRECISION_HINT": "f32"}).create_infer_request()
    return lambda: request.infer(inputs, share_inputs=True, share_outputs=True)


def _operator(folder: str, inputs: Mapping[str, Any], threads: int) -> Callable[[], object]:
    (file,) = Path(folder).glob("*.onnx")
    return _onnxruntime(str(file), inputs, threads, str(Path(folder, "libkintune_onnx.so")))


def main() -> None:
    """Serves until its input ends."""
    kind, file, arrays, threads = sys.argv[1:]
    with np.load(arrays) as loaded:
        inputs = {name: _aligned(loaded[name]) for name in loaded.files}
    if len(os.sched_getaffinity(0)) < int(threads):
        raise SystemExit(f"{threads} threads were asked for, and there are fewer processors")
    runtimes = {"kintune": _kintune, "onnxruntime": _onnxruntime, "openvino": _openvino, "operator": _operator}
    run = runtimes[kind](file, inputs, int(threads))
    run()
    print("ready", flush=True)
    for line in sys.stdin:
        begun = time.perf_counter()
        while time.perf_counter() - begun < _WARM_SECONDS:
            run()
        times = []
        for _ in range(int(line)):
            started = time.perf_counter()
            run()
            times.append(1e3 * (time.perf_counter() - started))
        print(json.dumps(times), flush=True)


if __name__ == "__main__":
    main()
