"""Errors that running a network raises; `kintune.errors` has them among its own."""

from __future__ import annotations

__all__ = ["InputError", "KintuneError", "RunError", "printable"]


def printable(text: str) -> str:
    """Return the text as one line: what cannot be printed becomes a space."""
    return text if text.isprintable() else "".join(each if each.isprintable() else " " for each in text)


class KintuneError(Exception):
    """Root of all errors raised by Kintune."""


class InputError(KintuneError):
    """Something from outside is wrong: a file, an argument, an array.  Nothing was changed.

    Its text is one line of printable characters: names in files may have line breaks, and codes that steer a terminal.
    """

    def __str__(self) -> str:
        return printable(super().__str__())


class RunError(KintuneError):
    """A network cannot run now: no memory or no thread is left, a context is in use, or a kernel failed."""
