"""TOML specs as documents that know the line of each table, key and list element, for error messages.

The standard parser does not report lines, so a scanner of the same text finds them.
"""

from __future__ import annotations

import bisect
import re
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path as FilePath
from typing import Any, NoReturn, TypeAlias

from kintune.errors import InputError
from kintune.files import check_readable

__all__ = ["Document", "Path", "SpecError", "lines_of"]


if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_LINE = re.compile(r"\s*\(at line (\d+), column \d+\)$")
_AT_END = re.compile(r"\s*\(at end of document\)$")


class Document:
    """A parsed TOML file; `name` is its name in error messages, `text` its text."""

    def __init__(self, name: str, text: str) -> None:
        """Parse the text.

        Raises:
            SpecError: the text is no TOML.
        """
        self.name = name
        self.text = text
        try:
            self.content: dict[str, Any] = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            found = _LINE.search(str(error))
            line = int(found.group(1)) if found else max(1, len(text.splitlines()))
            said = _AT_END.sub(" at the end of the file", _LINE.sub("", str(error)))
            raise SpecError(f"{name}:{line}: this is not TOML: {said[:1].lower()}{said[1:]}") from error
        except (ValueError, RecursionError) as error:  # Python's limits: thousands of digits, or of brackets
            raise SpecError(f"{name}: has a number that is too long, or is nested too deep") from error
        self._lines = lines_of(text)

    @classmethod
    def read(cls, path: str) -> Document:
        """The document in the file at `path`.

        Raises:
            InputError: the file cannot be read.
            SpecError: it is no TOML.
        """
        found = check_readable(path, "the spec")
        try:
            return cls(path, FilePath(found).read_bytes().decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            raise SpecError(f"{path}: is not a text in UTF-8; a spec is a TOML file") from error
        except OSError as error:
            raise InputError(f"the spec {path} cannot be read: {error.strerror}") from error

    def line(self, path: Path) -> int:
        """The line of what stands at `path`, or of the nearest thing around it."""
        while path and path not in self._lines:
            path = path[:-1]
        return self._lines.get(path, 1)

    def where(self, path: Path) -> str:
        """What an error about `path` begins with: file and line."""
        return f"{self.name}:{self.line(path)}: "

    def refuse(self, path: Path, problem: str) -> NoReturn:
        """Refuse what stands at `path`.

        Raises:
            SpecError: always, with the line of `path`.
        """
        raise SpecError(self.where(path) + problem)

    def table(self, path: Path, value: object) -> dict[str, Any]:
        """`value` if it is a table; else refuse it."""
        if not isinstance(value, dict):
            self.refuse(path, f"{path[0]} must be a table; write [{path[0]}] and its keys below")
        return value

    def known(self, path: Path, table: Mapping[str, object], names: list[str], what: str) -> None:
        """Refuse keys of `table` (at `path`) that are not among `names`."""
        for key in table:
            if key not in names:
                close = get_close_matches(key, names, n=1)
                hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(names) or 'none'}"
                self.refuse((*path, key), f"{what} {key!r}; {hint}")


class SpecError(InputError):
    """A spec cannot be used; the message begins with its file and line."""


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
