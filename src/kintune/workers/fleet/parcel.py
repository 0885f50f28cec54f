"""Files of the front on their way to a process elsewhere, in parts."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence

from kintune.workers.fleet.messages import Bring, Clear

__all__ = ["parcel"]

_PART = 1 << 20  # bytes of a file that go over the line at once


def parcel(process: int, paths: Sequence[str]) -> Iterator[Bring | Clear]:
    """These files and no others are to be where the process finds them.  They are read as the parts are taken.

    One that cannot be read does not come; who looks for it will say so.
    """
    yield Clear(process)
    for path in paths:
        with contextlib.suppress(OSError), open(path, "rb") as file:
            size, offset = os.fstat(file.fileno()).st_size, 0
            while (data := file.read(_PART)) or offset == 0:
                yield Bring(process, path, offset, size, data)
                if not data:
                    break
                offset += len(data)
