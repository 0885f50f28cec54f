"""Where a process finds files that the front names, when it does not run where they are.

The front calls a file by its path there.  Whoever keeps the process away from that machine puts a copy into the
process's depot before it is asked for, and the process looks there instead.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

__all__ = ["DEPOT_VARIABLE", "depot_name", "locate"]

DEPOT_VARIABLE = "KINTUNE_DEPOT"
"""The environment variable under which a process is told its depot; without it, files are where the front says."""


def depot_name(path: str) -> str:
    """What a file of the front is called in a depot: nothing of its path but the suffix, which loaders look at."""
    suffix = Path(path).suffix
    return hashlib.sha256(path.encode()).hexdigest() + (suffix if suffix.isascii() and len(suffix) <= 16 else "")


def locate(path: str) -> str:
    """Where a file of the front is for this process."""
    depot = os.environ.get(DEPOT_VARIABLE)
    return path if depot is None else os.path.join(depot, depot_name(path))
