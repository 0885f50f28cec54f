"""Imports networks of the zoo, builds them untuned, and compares their outputs with onnxruntime.

    python benchmarks/zoo_check.py                 # every network, one process each
    python benchmarks/zoo_check.py bert_large gpt2?sequence=64

Prints a Markdown table: seconds to write, import and build, the largest absolute error, that error over the largest
output, and the peak memory of the process.  Untuned, `vit_huge` runs for more than ten minutes; the others take a few
minutes together.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HEADER = """\
| network | parameters | write s | import s | build s | abs. error | rel. error | peak GB |
|---|---|---|---|---|---|---|---|"""
TIMEOUT_S = 1800


def main(arguments: list[str]) -> int:
    from kintune.models import zoo

    if arguments[:1] == ["--one"]:
        print(check(arguments[1], Path(arguments[2])))
        return 0
    print(HEADER, flush=True)
    failed = 0
    with tempfile.TemporaryDirectory() as directory:
        for name in arguments or zoo.names():
            command = [sys.executable, __file__, "--one", name, directory]
            environment = {"TVM_NUM_THREADS": "2", **os.environ}
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=TIMEOUT_S, env=environment, check=False
            )
            failed += done.returncode != 0
            lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines() or ["no output"]
            print(lines[-1] if done.returncode == 0 else f"| {name} | failed: {lines[-1][:200]} |", flush=True)
            for file in Path(directory).iterdir():
                file.unlink()
    return int(failed > 0)


def check(name: str, directory: Path) -> str:
    """One row of the table."""
    import numpy as np
    import onnxruntime
    import tvm
    from tvm import relax

    from kintune.models import zoo
    from kintune.models.importer import load
    from kintune.models.ref import parse_ref

    ref = parse_ref(f"zoo:{name}")
    start = time.perf_counter()
    zoo.write(ref.source, directory, **ref.options)
    written = time.perf_counter()
    model = load(ref, directory)
    imported = time.perf_counter()
    program = tvm.compile(relax.get_pipeline("zero")(model.module), "llvm")
    built = time.perf_counter()
    draw = np.random.default_rng(0)
    inputs = {
        tensor.name: draw.standard_normal(tensor.shape, dtype=np.float32)
        if tensor.dtype == "float32"
        else np.ones(tensor.shape, tensor.dtype)
        if "mask" in tensor.name
        else draw.integers(0, 2, tensor.shape, tensor.dtype)
        for tensor in model.inputs
    }
    machine = relax.VirtualMachine(program, tvm.cpu())
    result = machine["main"](*[tvm.runtime.tensor(inputs[tensor.name]) for tensor in model.inputs])
    ours = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)
    theirs = onnxruntime.InferenceSession(model.onnx_path).run(None, inputs)
    pairs = [(value.numpy(), np.asarray(other)) for value, other in zip(ours, theirs, strict=True)]
    absolute = max(float(np.abs(a - b).max()) for a, b in pairs)
    relative = max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in pairs)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    parameters = zoo.build(ref.source, **ref.options).parameters
    times = f"{written - start:.1f} | {imported - written:.1f} | {built - imported:.1f}"
    return f"| {name} | {parameters / 1e6:.2f} M | {times} | {absolute:.1e} | {relative:.1e} | {peak:.1f} |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
