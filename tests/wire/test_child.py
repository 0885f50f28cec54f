from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
import sys

import pytest

from kintune.wire.child import ResourceLimits, describe_end, last_words, starting

CHILD = """
import resource, signal
from kintune.wire.child import connect
from kintune.core.messages import ItemDone
channel, rest = connect()
facts = [
    " ".join(rest),
    str({signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)} == {signal.SIG_IGN}),
    str(resource.getrlimit(resource.RLIMIT_AS)[0]),
    str(resource.getrlimit(resource.RLIMIT_CORE)[0]),
]
channel.send(ItemDone("", 0, 0, ";".join(facts).encode()))
"""

FRONT = """
import os, signal, socket, subprocess, sys
front, child = socket.socketpair()
code = "from kintune.wire.child import connect; connect(); print('up', flush=True); import time; time.sleep(600)"
worker = subprocess.Popen([sys.executable, "-c", code, "--fd", str(child.fileno())], pass_fds=(child.fileno(),))
sys.stdin.readline()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_child_keeps_its_limits_and_its_own_arguments() -> None:
    front, child = socket.socketpair()
    with front, child:
        limits = ResourceLimits(address_space_mb=3000, core_dump_mb=0)
        subprocess.run(
            [sys.executable, "-c", CHILD, "--threads", "2", "--fd", str(child.fileno())],
            pass_fds=(child.fileno(),),
            env=os.environ | limits.to_environment(),
            check=True,
        )
        said = front.recv(4096)
    assert f"--threads 2;True;{3000 << 20};0".encode() in said


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's death signal is Linux's")
def test_a_child_stuck_in_native_code_dies_with_the_front() -> None:
    front = subprocess.Popen([sys.executable, "-c", FRONT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert front.stdin is not None
    assert front.stdout is not None
    with front.stdin, front.stdout:
        assert front.stdout.readline() == "up\n"
        front.stdin.write("go\n")
        front.stdin.flush()
        assert front.stdout.read() == ""  # ends once nobody, the worker included, holds the pipe
    assert front.wait() == -signal.SIGKILL


@pytest.mark.parametrize("arguments", [[], ["--fd", "999"]])
def test_only_the_engine_starts_a_child(arguments: list[str]) -> None:
    code = "from kintune.wire.child import connect; connect()"
    result = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert "OrderError" in result.stderr
    assert "run `kintune` instead" in result.stderr


@pytest.mark.parametrize(
    ("code", "words"),
    [(0, "exited with code 0"), (3, "exited with code 3"), (-11, "killed by SIGSEGV"), (-200, "killed by signal 200")],
)
def test_an_end_in_words(code: int, words: str) -> None:
    assert describe_end(code) == words


def test_a_crash_says_in_which_package() -> None:
    crash = "import ctypes, numpy; numpy.apply_along_axis(lambda x: ctypes.string_at(0), 0, numpy.zeros(3))"
    code = f"import faulthandler; faulthandler.enable(all_threads=False); print('begun', flush=True); {crash}"
    ended = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert last_words(ended.stdout) == ("begun", " in numpy")
    assert last_words("all is well\n") == ("all is well", "")


def test_a_library_that_is_loaded_does_not_report_crashes_in_its_own_way() -> None:
    code = """
import faulthandler, os, signal
from kintune.wire.child import starting
faulthandler.enable(all_threads=False)
with starting():
    signal.signal(signal.SIGSEGV, lambda *_: os._exit(0))  # as TVM does
os.kill(os.getpid(), signal.SIGSEGV)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGSEGV
    assert "Fatal Python error" in ended.stderr


def test_what_is_loaded_at_the_start_is_not_searched_for_garbage() -> None:
    held: list[list[int]] = [[] for _ in range(1000)]
    before = gc.get_freeze_count()
    with starting():
        assert not gc.isenabled()
    assert gc.isenabled()
    assert gc.get_freeze_count() >= before + len(held)
