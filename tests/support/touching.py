"""Calls functions of a library with arguments that end, or begin, exactly at pages that nobody may touch.

As a program, with a library and a JSON list of calls ([function, arguments]; an argument is a number, or a list of one
number of bytes for a pointer), it prints the number of each call before it is made.  A function that touches more than
the bytes it is given ends the process.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

__all__ = ["Call", "first_that_touches_more"]

Call = tuple[str, Sequence[int | list[int]]]

_ROOM = mmap.PAGESIZE


def first_that_touches_more(library: Path, calls: Sequence[Call]) -> Call | None:
    """The first call that touches memory beside what it is given; None if none does."""
    command = [sys.executable, "-m", __name__, str(library)]
    done = subprocess.run(command, input=json.dumps(calls), capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return None
    assert done.returncode < 0, done.stderr
    return calls[int(done.stdout.split()[-1])]


def _between_guards(nbytes: int, behind: bool) -> int:
    """The address of so many bytes that end, or begin, at an untouchable page."""
    whole = -(-max(nbytes, 1) // _ROOM) * _ROOM
    pages = mmap.mmap(-1, whole + 2 * _ROOM)
    start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    _KEPT.append(pages)
    for place in (0, _ROOM + whole):
        assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(start + place), ctypes.c_size_t(_ROOM), 0) == 0
    return start + _ROOM + (whole - nbytes if behind else 0)


_KEPT: list[mmap.mmap] = []


def _main(library: str) -> None:
    functions = ctypes.CDLL(library)
    for number, (name, arguments) in enumerate(json.load(sys.stdin)):
        print(number, flush=True)
        for behind in (True, False):
            given = [
                ctypes.c_void_p(_between_guards(each[0], behind)) if isinstance(each, list) else ctypes.c_int32(each)
                for each in arguments
            ]
            assert getattr(functions, name)(*given) == 0


if __name__ == "__main__":
    _main(sys.argv[1])
