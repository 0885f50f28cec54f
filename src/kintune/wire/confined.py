"""`python -m kintune.wire.confined MODULE ARGUMENTS...`: confines this process, and then runs the module in it.

It is started by `kintune.wire.confinement`.  It confines itself while it has one thread and has read no file of others:
a filter of system calls and Landlock hold for the thread that asks for them, and for what that starts.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import runpy
import sys
from collections.abc import Iterator

import msgspec

from kintune.wire.confinement import CONFINEMENT_VARIABLE, InsideOrder
from kintune.wire.system_calls import filter_system_calls

__all__ = ["confine", "main"]

_MIB = 1 << 20
_PR_CAPBSET_DROP, _PR_SET_KEEPCAPS, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE = 24, 8, 47, 2
_PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 4, 38
_CAP_DAC_OVERRIDE = 1
_CAPABILITY_VERSION = 0x20080522
_LAST_CAPABILITY = 63


def main() -> None:
    """Confine this process as its environment says, and run the module that is named first."""
    order = msgspec.json.decode(os.environ.pop(CONFINEMENT_VARIABLE), type=InsideOrder)
    module, *arguments = sys.argv[1:]
    confine(order)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def confine(order: InsideOrder) -> None:
    """Give up what the order does not allow, for good.

    Raises:
        OSError: the kernel refuses one of the layers: nothing is run without it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    _limit(order)
    if order.user:
        _become(order.user, libc)
    _check(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    if order.landlock:
        _close_files(order)
    if order.seccomp:
        filter_system_calls(network=order.confinement.network)


def _limit(order: InsideOrder) -> None:
    confinement = order.confinement
    _lower(resource.RLIMIT_FSIZE, min(confinement.file_mb, max(1, order.free_mb // 2)) * _MIB)
    _lower(resource.RLIMIT_NPROC, confinement.processes + (0 if order.user else _threads_of(os.geteuid())))
    if confinement.realtime and os.geteuid() == 0:
        with contextlib.suppress(ValueError):  # without CAP_SYS_RESOURCE
            resource.setrlimit(resource.RLIMIT_RTPRIO, (1, 1))


def _threads_of(user: int) -> int:
    """How many threads a user has that are seen from here, all of which count against the limit."""
    return sum(_threads(entry.path) for entry in _processes() if entry.stat().st_uid == user)


def _processes() -> Iterator[os.DirEntry[str]]:
    with os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdigit():
                yield entry


def _threads(process: str) -> int:
    try:
        return len(os.listdir(f"{process}/task"))
    except OSError:  # it has just ended, or is not to be looked at
        return 1


def _become(user: int, libc: ctypes.CDLL) -> None:
    """Become a user that nobody else is, without capabilities but to read and write files that lie open otherwise.

    Those are the ones that Landlock or the process's own file system leaves.
    """
    for capability in range(_LAST_CAPABILITY + 1):
        if capability != _CAP_DAC_OVERRIDE:
            libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    _check(libc.prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0))
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    kept = 1 << _CAP_DAC_OVERRIDE
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    sets = (ctypes.c_uint32 * 6)(kept, kept, kept, 0, 0, 0)  # effective, permitted, inheritable, of each half
    _check(libc.capset(header, sets))
    _check(libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, _CAP_DAC_OVERRIDE, 0, 0))
    _check(libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0))  # else its entries in /proc belong to root


def _close_files(order: InsideOrder) -> None:
    from landlockpy import AccessFS, Ruleset, Scope

    read = AccessFS.READ_FILE | AccessFS.READ_DIR
    write = read | AccessFS.WRITE_FILE | AccessFS.TRUNCATE | AccessFS.REFER | AccessFS.MAKE_REG | AccessFS.MAKE_DIR
    write |= AccessFS.REMOVE_FILE | AccessFS.REMOVE_DIR
    file = AccessFS.READ_FILE | AccessFS.WRITE_FILE | AccessFS.EXECUTE | AccessFS.TRUNCATE | AccessFS.IOCTL_DEV
    confinement = order.confinement
    grants = {
        read: (*order.system, "/proc", "/sys", *confinement.read),
        AccessFS.EXECUTE: order.programs,
        write: (order.temporary, "/dev/shm" if "/dev" in order.devices else "", *confinement.write),
        read | AccessFS.WRITE_FILE: (*order.devices, f"/proc/{os.getpid()}"),
    }
    with Ruleset(scoped=Scope.ABSTRACT_UNIX_SOCKET | Scope.SIGNAL) as rules:
        for access, paths in grants.items():
            for path in filter(None, paths):
                if os.path.exists(path):
                    rules.allow_path(path, access if os.path.isdir(path) else access & file)
        rules.restrict()


def _lower(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (bound, bound))


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


if __name__ == "__main__":
    main()
