"""The commands that a page of the documentation tells its reader to type, so that tests can type them.

They stand in fenced blocks (`sh`, `console`) and in indented ones whose first line is a command.  In a block with lines
that begin with `$`, those are the commands and the others what they print.  A comment before a block,
`<!-- not run: WHY -->`, says that it cannot be run and why.
"""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["CommandBlock", "command_blocks", "inline_commands", "python_blocks", "words_of"]

_BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<why>[^\n]+) -->\n+)?"
    r"(?:^```(?P<language>\w*)\n(?P<fenced>.*?)^```$"
    r"|(?:(?<=\n\n)|(?<=-->\n))(?P<indented>^    \S[^\n]*\n?(?:^(?:    [^\n]*)?\n?)*))",
    re.M | re.S,
)
_OTHERS = ("podman ", "ssh ")
_COMMANDS = ("kintune ", "make ", "source ", "python", "pip ", "echo ", "$ ", "tuning/bin/", "KINTUNE_", *_OTHERS)
_IMPORTS = ("import ", "from ")
_LANGUAGES = ("sh", "console")
_COMMENT = re.compile(r"\s{2,}# .*$| +# [^'\"]*$")
_INLINE = re.compile(r"`(kintune [^`\n]+)`")


class CommandBlock(NamedTuple):
    """A block of commands: the line of the page where it begins, the commands, and why it cannot be run, if so."""

    line: int
    commands: tuple[str, ...]
    not_run: str


def command_blocks(text: str) -> Iterator[CommandBlock]:
    """The blocks of a page with commands, in order."""
    for found in _BLOCK.finditer(text):
        if found["fenced"] is not None:
            if found["language"] not in _LANGUAGES:
                continue
            lines, start = found["fenced"].splitlines(), found.start("fenced")
        else:
            lines = [line[4:] for line in found["indented"].splitlines()]
            start = found.start("indented")
            if not lines[0].startswith(_COMMANDS):
                continue
        if any(line.startswith("$ ") for line in lines):
            lines = [line[2:] for line in lines if line.startswith("$ ")]
        commands = [_COMMENT.sub("", line).rstrip() for line in _joined(lines)]
        commands = [line for line in commands if line and not line.startswith("#")]
        yield CommandBlock(text.count("\n", 0, start) + 1, tuple(commands), found["why"] or "")


def python_blocks(text: str) -> Iterator[CommandBlock]:
    """The blocks of a page that are programs in Python, which begin with an import: of each the one text, in order."""
    for found in _BLOCK.finditer(text):
        fenced = found["fenced"] is not None
        code = found["fenced"] if fenced else textwrap.dedent(found["indented"])
        if code.startswith(_IMPORTS) and (not fenced or found["language"] == "python"):
            start = found.start("fenced" if fenced else "indented")
            yield CommandBlock(text.count("\n", 0, start) + 1, (code.rstrip(),), found["why"] or "")


def inline_commands(text: str) -> list[str]:
    """The commands of `kintune` that stand within sentences, as far as they are whole: alternatives are left out."""
    outside = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    return [each for each in _INLINE.findall(outside) if not re.search(r"[|\[\]<>]|\.\.\.|[A-Z]{2,}.*\|", each)]


def words_of(command: str) -> list[str]:
    """The words of the part of a line that calls `kintune`; none for another line."""
    found = re.search(r"(?:^|[\s/;&(])kintune (.*)", f" {command}")
    if found is None or command.startswith(_OTHERS):
        return []
    try:
        words = shlex.split(found[1], comments=True)
    except ValueError:  # a quote of the shell around it
        words = found[1].split()
    end = next((place for place, word in enumerate(words) if word in ("&&", "|", ";", ">", ">>")), len(words))
    return words[:end]


def _joined(lines: list[str]) -> Iterator[str]:
    """The lines, those that end with a backslash together with the next."""
    waiting = ""
    for line in lines:
        if line.endswith("\\"):
            waiting += line[:-1]
        else:
            yield waiting + line
            waiting = ""
