"""File transfer as seen by a process that may run on another machine than the front.

The front names a file by its path on its own machine.  On another machine, a copy is put into the process's staging
directory before it starts work, and the process reads that one.  It writes files for the front into a directory of its
own, from which they are brought to the front.
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
"""The environment variable with a process's staging directory; without it, files are read at the front's paths."""

MADE_VARIABLE = "KINTUNE_MADE"
"""The environment variable with the directory for files for the front; without it, they go to the front's paths."""

READY = ".handed-over"
"""The suffix of a file that is written beside another one once that one is complete; it holds a `HandedOver`."""


class HandedOver(msgspec.Struct, frozen=True):
    """A file that a process has made: its name in the process's directory, its path at the front, its size in bytes,
    and the SHA-256 digest of its content in hexadecimal.
    """

    name: str
    path: str
    size: int
    digest: str


def staged_name(path: str) -> str:
    """Return the name of a front's file in a staging directory: a digest of its path, and its suffix for loaders.

    The network for a board is named after the file beside which it lies, with `BOARD_FILE` at the end.
    """
    if path.endswith(BOARD_FILE):
        return staged_name(path.removesuffix(BOARD_FILE)) + BOARD_FILE
    suffix = Path(path).suffix
    return hashlib.sha256(path.encode()).hexdigest() + (suffix if suffix.isascii() and len(suffix) <= 16 else "")


def locate(path: str) -> str:
    """Return the path at which this process finds a file of the front."""
    staging = os.environ.get(STAGING_VARIABLE)
    return path if staging is None else os.path.join(staging, staged_name(path))


def find(path: str) -> str:
    """Return the path of the copy in the staging directory, or `path` itself if there is no copy."""
    staged = locate(path)
    return staged if os.path.exists(staged) else path


def is_apart() -> bool:
    """Return whether the front does not see the files that this process writes, so that they must be handed over."""
    return MADE_VARIABLE in os.environ


def place_of(path: str) -> str:
    """Return the path at which this process writes the front's file `path`."""
    made = os.environ.get(MADE_VARIABLE)
    return path if made is None else os.path.join(made, os.path.basename(path))


def hand_over(path: str) -> None:
    """Have the file at `place_of(path)` brought to the front before this process's next message arrives there.

    Nothing is done where the front sees the file already.

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
