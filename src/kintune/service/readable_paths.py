"""Errors and logs without the paths of the service: users know their files by name alone."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePath

__all__ = ["without_paths"]

_REST = r"/[^\s'\"`:;,()\[\]]*"  # of a path in a line; names of ours have none of these characters
_NUMBERED = re.compile(r"(?:compared|inputs)\d+-")
_OURS = (sys.prefix, str(Path(__file__).parents[3]), tempfile.gettempdir())
_DIGEST = re.compile(r"[0-9a-f]{64}")


def without_paths(text: str, directory: str, names: Mapping[str, str] | None = None) -> str:
    """Returns a text in which each path inside `directory` is the name of its file, or what `names` calls it.

    So are paths of the installation and of temporary files; a path that is in a model, such as a node's name, stays.
    """

    def name_of(found: re.Match[str]) -> str:
        path = found.group()
        name = (names or {}).get(path) or _NUMBERED.sub("", PurePath(path).name)
        return "a file of the service" if _DIGEST.fullmatch(name) else name

    inside = "|".join(re.escape(each.rstrip("/")) for each in (directory, *_OURS))
    return re.sub(rf"(?<![\w.])(?:{inside}){_REST}", name_of, text)
