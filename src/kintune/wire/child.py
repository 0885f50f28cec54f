"""The first steps of every process that the front starts: so it cannot outlive the front, and keeps its limits."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import faulthandler
import gc
import logging
import os
import re
import resource
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from kintune.core.messages import ToWorker
from kintune.errors import OrderError
from kintune.wire.channel import Channel, child_end

__all__ = ["FD_OPTION", "LIMITS_VARIABLE", "ResourceLimits", "connect", "describe_end", "last_words", "starting"]


FD_OPTION = "--fd"
"""The option under which a child is told its inherited socket."""

LIMITS_VARIABLE = "KINTUNE_RESOURCE_LIMITS"
"""The environment variable under which a child is told its `ResourceLimits`."""

_PR_SET_PDEATHSIG = 1
_MIB = 1 << 20


class ResourceLimits(msgspec.Struct, frozen=True):
    """Limits that a child sets for itself before it does anything else; its own children inherit them.

    `address_space_mb` bounds what it may map (None: unbounded), `core_dump_mb` the core file it may leave behind,
    `cores` are the processors that it may run on (none: those of its parent).
    """

    address_space_mb: int | None = None
    core_dump_mb: int = 0
    cores: tuple[int, ...] = ()

    def to_environment(self) -> dict[str, str]:
        """The variables that hand these limits to a child."""
        return {LIMITS_VARIABLE: msgspec.json.encode(self).decode()}

    def apply(self) -> None:
        """Set them for this process; a limit that is already tighter stays."""
        _lower(resource.RLIMIT_CORE, self.core_dump_mb * _MIB)
        if self.address_space_mb is not None:
            _lower(resource.RLIMIT_AS, self.address_space_mb * _MIB)
        if self.cores:
            os.sched_setaffinity(0, self.cores)


def connect(argv: Sequence[str] | None = None) -> tuple[Channel[ToWorker], list[str]]:
    """Set up this process as a child of the front; returns the channel to it, and the arguments that are not about it.

    SIGINT, SIGTERM and SIGHUP are ignored, since the front ends its children.  A terminal or a service sends them to
    all its processes, and they would look like failures of the items at work.  The kernel kills this process when the
    front dies, even if native code never returns, and kills it before others when memory runs out.  The process applies
    the `ResourceLimits` of its environment to itself.  If native code crashes, Python prints where; see `last_words`.
    Log lines go to standard error.

    Args:
        argv: the arguments, by default those of the process.

    Raises:
        OrderError: there is no `--fd`, or it is not a socket: only the engine can start this program.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    faulthandler.enable(all_threads=False)
    logging.basicConfig(format="%(message)s")
    logging.getLogger("kintune").setLevel(logging.INFO)
    _die_with_parent()
    _go_first_when_memory_runs_out()
    if LIMITS_VARIABLE in os.environ:
        msgspec.json.decode(os.environ[LIMITS_VARIABLE], type=ResourceLimits).apply()
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument(FD_OPTION, type=int, default=None)
    options, rest = parser.parse_known_args(sys.argv[1:] if argv is None else argv)
    if options.fd is None:
        raise OrderError("this program is started by the engine and talks to it over --fd; run `kintune` instead")
    try:
        sock = socket.socket(fileno=options.fd)
    except OSError as error:
        raise OrderError(
            f"--fd {options.fd} is not a connected socket ({error.strerror}); run `kintune` instead"
        ) from None
    sock.set_inheritable(False)
    return child_end(sock), rest


@contextmanager
def starting() -> Iterator[None]:
    """Switch garbage collection off while a process loads its modules, and never collect the objects made meanwhile.

    None of them is garbage.  Searching them takes a quarter of the time that a process with the compiler needs to start
    and to end.  If Python reports crashes of native code, it does so in place of what was loaded, such as the compiler.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if faulthandler.is_enabled():
            faulthandler.disable()
            faulthandler.enable(all_threads=False)
        if was_on:
            gc.enable()


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _go_first_when_memory_runs_out() -> None:
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500")


def _lower(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (bound, bound))


def last_words(output: str) -> tuple[str, str]:
    """Returns what a process has printed before it crashed, and " in PACKAGE", or "", for where it crashed."""
    words, _, stack = output.partition("Fatal Python error: ")
    place = re.search(r"/(?:site|dist)-packages/(\w+)", stack)
    return words.strip(), f" in {place[1]}" if place else ""


def describe_end(code: int) -> str:
    """Return in words how a process ended, from its exit code, or minus the number of the signal that ended it."""
    if code >= 0:
        return f"exited with code {code}"
    if -code == signal.SIGSYS:
        return "killed by SIGSYS: it made a system call that no process of its kind may make"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
