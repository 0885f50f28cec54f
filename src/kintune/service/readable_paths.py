"""Errors and logs without the paths of the service: users know their files by name alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePath

__all__ = ["without_paths"]

_REST = r"/[^\s'\"`:;,()\[\]]*"  # of a path in a line; names of ours have none of these characters
_NUMBERED = re.compile(r"(?:compared|inputs)\d+-")
_DIGEST = re.compile(r"[0-9a-f]{64}")


def without_paths(text: str, directory: str, names: Mapping[str, str] | None = None) -> str:
    """Returns a text in which each path inside `directory` is the name of its file, or what `names` calls it."""

    def name_of(found: re.Match[str]) -> str:
        path = found.group()
        name = (names or {}).get(path) or _NUMBERED.sub("", PurePath(path).name)
        return "a file of the service" if _DIGEST.fullmatch(name) else name

    return re.sub(re.escape(directory.rstrip("/")) + _REST, name_of, text)
