import os
import subprocess
import sys

import pytest

from kintune.errors import InputError
from kintune.runtime.placement import prepare_threads

pytestmark = pytest.mark.tvm

PROGRAM = """
import os, sys
allowed = {int(c) for c in sys.argv[2].split(",")}
os.sched_setaffinity(0, allowed)
from kintune.runtime.placement import prepare_threads
prepare_threads(int(sys.argv[1]))
prepare_threads(int(sys.argv[1]))
import tvm
print(os.environ["TVM_NUM_THREADS"], tvm.runtime.num_threads(), os.sched_getaffinity(0) == allowed)
pool = [set(os.sched_getaffinity(int(task))) for task in os.listdir("/proc/self/task")]
print(all(cores <= allowed for cores in pool))
"""


def run(threads: int, allowed: list[int], **environment: str) -> list[str]:
    """What the program prints in a process that may use these processors."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TVM_")}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, str(threads), ",".join(map(str, allowed))],
        env={**inherited, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        check=True, capture_output=True, text=True,
    ).stdout.splitlines()  # fmt: skip


def test_there_are_never_more_threads_than_cores_and_none_elsewhere() -> None:
    usable = sorted(os.sched_getaffinity(0))
    assert run(64, usable[-1:]) == ["1 1 True", "True"]


def test_the_variable_decides() -> None:
    usable = sorted(os.sched_getaffinity(0))
    assert run(1, usable[:1], TVM_NUM_THREADS="3", TVM_BIND_THREADS="0")[0].split()[0] == "3"


@pytest.mark.parametrize("named", ["many", "0", "-1", "", "9" * 5000])
def test_a_variable_that_names_no_number_is_refused(monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    monkeypatch.setenv("TVM_NUM_THREADS", named)
    with pytest.raises(InputError, match=r"TVM_NUM_THREADS='.*' is no number of threads"):
        prepare_threads(1)
