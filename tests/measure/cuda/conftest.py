from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from kintune.errors import OrderError
from kintune.hardware.gpus import list_gpus
from kintune.hardware.toolchain import find_nvcc
from tests.support.paper_gpu import build_paper_gpu

collect_ignore: list[str] = []  # what there is nothing for here is no test, not one that is skipped
try:
    find_nvcc()
except OrderError:
    collect_ignore += ["on_gpu", "with_nvcc"]
if not list_gpus():
    collect_ignore.append("on_gpu")


@pytest.fixture(scope="session")
def paper_gpu(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which this machine has one GPU, on paper."""
    return {**os.environ, **build_paper_gpu(tmp_path_factory.mktemp("paper"))}


BUILD = """
import ctypes, json, struct
import tvm
from tvm import te, topi
from kintune.compiler.build import build_candidate
from kintune.runtime.target import resolve_target
from kintune.core.candidate import Candidate
from kintune.compiler.space.replay import save_workload
from kintune.search.processor import Processor
from kintune.search.rules import rule_candidates
from kintune.compiler.space.sketches import generate_sketches

target = tvm.target.Target(json.loads(resolve_target("cuda -arch=sm_90", 1)))
a, w = te.placeholder((64, 64), name="a"), te.placeholder((64, 64), name="w")
function = te.create_prim_func([a, w, topi.nn.relu(topi.matmul(a, w))])
module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
sketches = generate_sketches("w", module, target)
for candidate in (Candidate.untuned("w"), rule_candidates(sketches, Processor.of(()), 1)[0]):
    sketch = next((s for s in sketches if s.digest == candidate.sketch), None)
    artifact = build_candidate(target, save_workload(module), sketch, candidate).artifact
    inner = artifact.index(b"\\x7fELF", 1)  # the machine code of the GPU, inside that of the host
    machines = [struct.unpack_from("<H", artifact, start + 18)[0] for start in (0, inner)]
    print(*machines)
print(ctypes.CDLL("libcuda.so.1").cuInit(0))
"""


def _built_by(environment: dict[str, str]) -> list[str]:
    command = [sys.executable, "-c", BUILD]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def built_by() -> Callable[[dict[str, str]], list[str]]:
    """Builds two programs for a GPU in a process with an environment of its own, where a stand-in for the driver stays.

    Tells for which machines (by the number in an ELF header) the outer and the inner code of each is, and what the
    driver says when it is asked for a device.
    """
    return _built_by
