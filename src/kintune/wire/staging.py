"""Where a process finds files that the front names, when it does not run where they are.

The front names a file by its path on its own machine.  Whoever runs the process on another machine puts a copy into the
process's staging directory beforehand, and the process looks there instead.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

__all__ = ["STAGING_VARIABLE", "locate", "staged_name"]

STAGING_VARIABLE = "KINTUNE_DEPOT"
"""The environment variable under which a process is told its staging directory; without it, files are where the front
says."""


def staged_name(path: str) -> str:
    """What a file of the front is called in a staging directory: nothing of its path but the suffix, which loaders
    look at."""
    suffix = Path(path).suffix
    return hashlib.sha256(path.encode()).hexdigest() + (suffix if suffix.isascii() and len(suffix) <= 16 else "")


def locate(path: str) -> str:
    """Where a file of the front is for this process."""
    staging = os.environ.get(STAGING_VARIABLE)
    return path if staging is None else os.path.join(staging, staged_name(path))
