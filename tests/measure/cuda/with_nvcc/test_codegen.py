from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

pytestmark = pytest.mark.tvm

BUILD = """
import ctypes, json, struct
import tvm
from tvm import te, topi
from kintune.measure.build import build_candidate
from kintune.measure.target import resolve_target
from kintune.space.candidate import Candidate
from kintune.space.lower import save_workload
from kintune.space.machine import Machine
from kintune.space.rules import rule_candidates
from kintune.space.sketches import generate_sketches

target = tvm.target.Target(json.loads(resolve_target("cuda -arch=sm_90", 1)))
a, w = te.placeholder((64, 64), name="a"), te.placeholder((64, 64), name="w")
function = te.create_prim_func([a, w, topi.nn.relu(topi.matmul(a, w))])
module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
sketches = generate_sketches("w", module, target)
for candidate in (Candidate.untuned("w"), rule_candidates(sketches, Machine.of(()), 1)[0]):
    sketch = next((s for s in sketches if s.digest == candidate.sketch), None)
    artifact = build_candidate(target, save_workload(module), sketch, candidate).artifact
    inner = artifact.index(b"\\x7fELF", 1)  # the machine code of the GPU, inside that of the host
    machines = [struct.unpack_from("<H", artifact, start + 18)[0] for start in (0, inner)]
    print(machines, b"sm_90" in artifact)
print(tvm.cuda(0).exist, ctypes.CDLL("libcuda.so.1").cuInit(0))
"""


def test_programs_for_gpus_are_built_where_there_is_none() -> None:
    """In a process of its own: a stand-in for the driver stays."""
    done = subprocess.run([sys.executable, "-c", BUILD], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *built, rest = done.stdout.splitlines()
    assert built == ["[62, 190] True"] * 2  # x86-64, CUDA
    if shutil.which("nvidia-smi") is None:
        assert rest == "False 100"  # no device
