"""Where a process finds files that the front names, and leaves those that it makes, when it runs elsewhere.

The front names a file by its path on its own machine.  Whoever runs the process on another machine puts a copy into the
process's staging directory beforehand, and the process looks there instead.  What the process makes for the front it
writes into a directory of its own and hands over from there.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import msgspec

from kintune.core.stage_results import BOARD_FILE
from kintune.files import sha256_of

__all__ = [
    "MADE_VARIABLE",
    "READY",
    "STAGING_VARIABLE",
    "HandedOver",
    "find",
    "hand_over",
    "is_apart",
    "locate",
    "place_of",
    "staged_name",
]

STAGING_VARIABLE = "KINTUNE_DEPOT"
"""The environment variable under which a process is told its staging directory; without it, files are where the front
says."""

MADE_VARIABLE = "KINTUNE_MADE"
"""The environment variable under which a process is told where to write files for the front; without it, where the
front says."""

READY = ".handed-over"
"""The suffix of the files that say, each of another file, that it is complete (`HandedOver`)."""


class HandedOver(msgspec.Struct, frozen=True):
    """A file that a process has made: its name where it was written, its path at the front, and what is in it."""

    name: str
    path: str
    size: int
    digest: str


def staged_name(path: str) -> str:
    """What a file of the front is called in a staging directory: nothing of its path but the suffix, which loaders
    look at.  The file for a board is called as the one beside which it lies, with its suffix."""
    if path.endswith(BOARD_FILE):
        return staged_name(path.removesuffix(BOARD_FILE)) + BOARD_FILE
    suffix = Path(path).suffix
    return hashlib.sha256(path.encode()).hexdigest() + (suffix if suffix.isascii() and len(suffix) <= 16 else "")


def locate(path: str) -> str:
    """Where a file of the front is for this process."""
    staging = os.environ.get(STAGING_VARIABLE)
    return path if staging is None else os.path.join(staging, staged_name(path))


def find(path: str) -> str:
    """The same for a file that may not have been brought: the path itself then."""
    staged = locate(path)
    return staged if os.path.exists(staged) else path


def is_apart() -> bool:
    """Whether files that this process makes have to be handed over."""
    return MADE_VARIABLE in os.environ


def place_of(path: str) -> str:
    """Where this process writes what the front wants under this path."""
    made = os.environ.get(MADE_VARIABLE)
    return path if made is None else os.path.join(made, os.path.basename(path))


def hand_over(path: str) -> None:
    """Have the file that was written to `place_of(path)` brought to the front, before what is said next.

    Where the front sees it already, nothing is done.

    Raises:
        OSError: it cannot be read.
    """
    if not is_apart():
        return
    place = Path(place_of(path))
    with place.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        handed_over = HandedOver(place.name, path, size, sha256_of(file).hex())
    temporary = place.with_name(f"{place.name}.noted")
    temporary.write_bytes(msgspec.json.encode(handed_over))
    temporary.replace(place.with_name(f"{place.name}{READY}"))
