"""Runs exports by whatever onnxruntime is installed, and prints what came of it as one line of JSON.

    python onnxruntime_program.py EXPORT OTHER FAILING

These are ONNX files: EXPORT computes x + w + w of 1000 elements, w[i] = i; OTHER is of another model, and registered
with the same options; the kernel of FAILING fails.  The test that starts this compares what is printed.
"""

from __future__ import annotations

import json
import os
import sys
import threading

import numpy as np
import onnxruntime

X = np.linspace(-1, 1, 1000, dtype=np.float32)
W = np.arange(1000, dtype=np.float32)


def session(*paths: str) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    options.log_severity_level = 4
    for path in paths:
        options.register_custom_ops_library(os.path.join(os.path.dirname(path), "libkintune_onnx.so"))
    return onnxruntime.InferenceSession(paths[0], options, providers=["CPUExecutionProvider"])


def main(path: str, other: str, failing: str) -> None:
    run = session(path, other)
    right = []

    def many(number: int) -> None:
        x = X + np.float32(number)
        for _ in range(100):
            right.append(np.array_equal(run.run(None, {"x": x})[0], x + W + W))

    threads = [threading.Thread(target=many, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    try:
        failed = repr(session(failing).run(None, {"x": X[:1]}))
    except Exception as error:  # its class differs among versions
        failed = str(error)
    print(json.dumps({"version": onnxruntime.__version__, "right": right.count(True), "failed": failed}))


if __name__ == "__main__":
    main(*sys.argv[1:])
