"""What every process that the front starts does first, so that it neither outlives the front nor starves it."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import os
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

__all__ = ["FD_OPTION", "LIMITS_VARIABLE", "ResourceLimits", "connect", "describe_end", "starting"]


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
    """Take the place of a child: the channel to the front, and the arguments that are not about it.

    Signals that ask for an end are left to the front, which ends its children as it sees fit: what comes to all
    processes of a terminal or a service would else look like a failure of the work in hand.  The kernel kills this
    process when the front dies (even where native code never returns to look at its socket), it is the first to go
    when memory runs out, and it keeps the limits that it finds in its environment.

    Args:
        argv: the arguments, by default those of the process.

    Raises:
        OrderError: there is no `--fd`, or it is not a socket: only the engine can start this program.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
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
    """While a process loads what it needs: nothing of that is garbage, so it is not searched for any, then or later.

    Searching takes a quarter of the time that a process with the compiler needs to start and to end.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
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


def describe_end(code: int) -> str:
    """In a few words; `code` is the exit code, or minus the number of the signal that ended it."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
