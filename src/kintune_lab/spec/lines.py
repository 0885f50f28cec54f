"""On which line of a TOML text each key and each element of a list stands, which the standard parser does not tell."""

from __future__ import annotations

import bisect
from typing import TypeAlias

__all__ = ["Path", "lines_of"]

Path: TypeAlias = tuple[str | int, ...]
"""Keys and positions in lists on the way to a value: `("method", 0, "families", 1)`."""


def lines_of(text: str) -> dict[Path, int]:
    """The line (from 1) of every table, key and list element of `text`, which must be valid TOML."""
    return _Scanner(text.replace("\r\n", "\n")).scan()


class _Scanner:
    """Walks through a text that is known to be valid, and remembers only where things stand."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._ends = [at for at, letter in enumerate(text) if letter == "\n"]
        self._lines: dict[Path, int] = {}
        self._lengths: dict[Path, int] = {}  # of arrays of tables

    def scan(self) -> dict[Path, int]:
        table: Path = ()
        while self._skip_trivia():
            if self._peek() == "[":
                table = self._header()
            else:
                self._pair(table)
        return self._lines

    def _header(self) -> Path:
        line = self._line()
        many = self._text.startswith("[[", self._at)
        self._at += 2 if many else 1
        path = self._resolve((), self._key("]"))
        self._at += 2 if many else 1
        self._lines.setdefault(path, line)
        if many:
            self._lengths[path] = self._lengths.get(path, 0) + 1
            path = (*path, self._lengths[path] - 1)
            self._lines[path] = line
        return path

    def _resolve(self, table: Path, keys: tuple[str, ...]) -> Path:
        """The path of `keys` below `table`; on the way through an array of tables it is the last of them."""
        path = table
        for key in keys[:-1]:
            path = (*path, key)
            if path in self._lengths:
                path = (*path, self._lengths[path] - 1)
        return (*path, keys[-1])

    def _pair(self, table: Path) -> None:
        line = self._line()
        keys = self._key("=")
        self._at += 1
        for depth in range(1, len(keys) + 1):
            self._lines.setdefault((*table, *keys[:depth]), line)
        self._value((*table, *keys))

    def _key(self, end: str) -> tuple[str, ...]:
        parts: list[str] = []
        while True:
            self._skip_trivia()
            if self._peek() in "\"'":
                parts.append(self._string())
            else:
                start = self._at
                while self._peek() not in f"{end}. \t":
                    self._at += 1
                parts.append(self._text[start : self._at])
            self._skip_trivia()
            if self._peek() == end:
                return tuple(parts)
            self._at += 1

    def _value(self, path: Path) -> None:
        self._skip_trivia()
        match self._peek():
            case "[":
                self._items(path, "]")
            case "{":
                self._items(path, "}")
            case '"' | "'":
                self._string()
            case _:
                while self._peek() not in ",]}\n#":
                    self._at += 1

    def _items(self, path: Path, end: str) -> None:
        """The elements of a list, or the pairs of an inline table."""
        self._at += 1
        count = 0
        while self._skip_trivia() and self._peek() != end:
            if self._peek() == ",":
                self._at += 1
            elif end == "}":
                self._pair(path)
            else:
                element = (*path, count)
                self._lines[element] = self._line()
                self._value(element)
                count += 1
        self._at += 1

    def _string(self) -> str:
        """Step over a string and return what stands in it, escapes as they are written."""
        quote = self._peek()
        fence = quote * 3 if self._text.startswith(quote * 3, self._at) else quote
        self._at += len(fence)
        start = self._at
        while not self._text.startswith(fence, self._at):
            self._at += 2 if quote == '"' and self._peek() == "\\" else 1
        while len(fence) == 3 and self._text.startswith(fence, self._at + 1):
            self._at += 1
        said = self._text[start : self._at]
        self._at += len(fence)
        return said

    def _skip_trivia(self) -> bool:
        """Step over white space and comments; whether anything is left."""
        while self._at < len(self._text):
            if self._peek() == "#":
                while self._peek() != "\n":
                    self._at += 1
            elif self._peek() in " \t\n":
                self._at += 1
            else:
                return True
        return False

    def _peek(self) -> str:
        """The letter here; the end of the text reads as the end of a line."""
        return self._text[self._at] if self._at < len(self._text) else "\n"

    def _line(self) -> int:
        return bisect.bisect_left(self._ends, self._at) + 1
