"""The code blocks of a page, so that tests can do what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

__all__ = ["Block", "blocks"]

_BLOCK = re.compile(r"^## (?P<heading>.+?)$|^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S)
_NAME = re.compile(r"(?:/\* |// |# )([\w.]+): ")


class Block(NamedTuple):
    """A block: the heading of its section, its language, its text, and the file that its first line names, if any."""

    heading: str
    language: str
    text: str
    file: str


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    found, heading = [], ""
    for match in _BLOCK.finditer(page.read_text()):
        if match["heading"]:
            heading = match["heading"]
        else:
            named = _NAME.match(match["text"])
            found.append(Block(heading, match["language"], match["text"], named[1] if named else ""))
    return found
