"""A spec's text as a document that knows the line of everything in it."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path as FilePath
from typing import Any, NoReturn

from kintune.errors import InputError
from kintune.files import check_readable
from kintune_lab.spec.errors import SpecError
from kintune_lab.spec.lines import Path, lines_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["Document"]

_LINE = re.compile(r"\s*\(at line (\d+), column \d+\)$")
_AT_END = re.compile(r"\s*\(at end of document\)$")


class Document:
    """A parsed TOML file; `name` is what errors call it, `text` what stands in it."""

    def __init__(self, name: str, text: str) -> None:
        """Raises SpecError when the text is no TOML."""
        self.name = name
        self.text = text
        try:
            self.content: dict[str, Any] = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            found = _LINE.search(str(error))
            line = int(found.group(1)) if found else max(1, len(text.splitlines()))
            said = _AT_END.sub(" at the end of the file", _LINE.sub("", str(error)))
            raise SpecError(f"{name}:{line}: this is not TOML: {said[:1].lower()}{said[1:]}") from error
        self._lines = lines_of(text)

    @classmethod
    def read(cls, path: str) -> Document:
        """The document in the file at `path`.

        Raises InputError when it cannot be read, SpecError when it is no TOML.
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
        """Raise SpecError with the line of `path`."""
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
