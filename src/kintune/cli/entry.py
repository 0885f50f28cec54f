"""The entry point of the command line: runs a command, and turns every error into one line and an exit code."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import signal
import sys
from collections.abc import Sequence
from enum import IntEnum
from typing import TextIO

import click

from kintune.cli.root import root
from kintune.cli.widths import help_width
from kintune.errors import InputError, KintuneError, StorageError
from kintune.terminal.table import printable

__all__ = ["ExitCode", "main"]

_LEFT_BY_BRACES = re.compile(r"unexpected extra arguments? \(.*=(\d+x)*\d+")
"""The error of click for `--shape ids=1x{32,64}` after the shell has expanded the braces to two words."""

_NO_OUTPUT = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""Errors of a stream that takes no more: the disk is full, the terminal is gone."""

COMPLETION_VARIABLE = "_KINTUNE_COMPLETE"

_LONGEST_LINE = 4000  # characters of a message
_SIGNALLED = 128  # and the number of the signal, as shells have it


class ExitCode(IntEnum):
    """The exit codes of the command."""

    OK = 0
    FAILED = 1
    WRONG_INPUT = 2
    INTERRUPTED = 130
    CLOSED_PIPE = 141


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `kintune` with `arguments` (those of the process by default) and return its exit code.

    No error leaves this function, and none is shown as a stack trace unless the environment sets `KINTUNE_DEBUG`.
    """
    code = _run(arguments)
    for stream in (sys.stdout, sys.stderr):
        _let_go(stream)
    return code


def _run(arguments: Sequence[str] | None) -> int:
    streams = sys.stdout, sys.stderr
    for stream in streams:
        _never_refuse(stream)
    given = sys.argv[1:] if arguments is None else list(arguments)
    if (strange := next((one for one in given if not _is_text(one)), None)) is not None:
        _say(f"error: {os.fsencode(strange)!r} is not UTF-8; name it otherwise, or rename the file")
        return ExitCode.WRONG_INPUT
    if COMPLETION_VARIABLE in os.environ:
        import kintune.cli.completion  # noqa: F401  (its import tells click of our shells)
    try:
        code = root.main(
            args=given,
            prog_name="kintune",
            standalone_mode=False,
            terminal_width=help_width(),
        )
        if sys.stdout is not None:
            sys.stdout.flush()
        return code if isinstance(code, int) else ExitCode.OK
    except BrokenPipeError:  # the reader of our output has left, as `kintune models | head` does
        return ExitCode.CLOSED_PIPE
    except SystemExit:
        if sys.stdout is streams[0]:
            raise
        sys.stdout, sys.stderr = streams  # click has replaced them, which is how it says that a pipe was closed
        return ExitCode.CLOSED_PIPE
    except (KeyboardInterrupt, click.Abort) as error:
        _say("interrupted")
        return _SIGNALLED + getattr(error.__cause__ or error, "number", signal.SIGINT)
    except Exception as error:
        if os.environ.get("KINTUNE_DEBUG"):
            raise
        return _explain(error)


def _explain(error: Exception) -> ExitCode:
    """Say in one line what went wrong, and choose the exit code."""
    if isinstance(error, click.UsageError):
        command = error.ctx.command_path if error.ctx else "kintune"
        message = error.format_message().rstrip(".")
        if _LEFT_BY_BRACES.search(message):
            message += "; if the shell has expanded the braces of --shape, put its text in quotes"
        _say(f"error: {message} (see {command} --help)")
        return ExitCode.WRONG_INPUT
    if isinstance(error, click.ClickException):
        _say(f"error: {error.format_message()}")
        return ExitCode.WRONG_INPUT
    if isinstance(error, InputError | StorageError):
        _say(f"error: {error}")
        return ExitCode.WRONG_INPUT
    if isinstance(error, KintuneError):
        _say(f"error: {error}")
        return ExitCode.FAILED
    if isinstance(error, OSError) and error.errno in _NO_OUTPUT and error.filename is None:
        _say(f"error: the output cannot be written: {error.strerror}")
        return ExitCode.WRONG_INPUT
    if isinstance(error, MemoryError):
        _say(f"error: there is not enough memory: {error}" if str(error) else "error: there is not enough memory")
        return ExitCode.FAILED
    _say(f"internal error: {type(error).__name__}: {error}; KINTUNE_DEBUG=1 shows where; please report it")
    return ExitCode.FAILED


def _is_text(argument: str) -> bool:
    """Whether it was UTF-8; what is not cannot be written to documents and records."""
    try:
        argument.encode()
    except UnicodeEncodeError:
        return False
    return True


def _never_refuse(stream: TextIO | None) -> None:
    """Have characters that the terminal's encoding lacks written as escapes."""
    if isinstance(stream, io.TextIOWrapper):
        with contextlib.suppress(OSError, ValueError):  # it is broken or closed
            stream.reconfigure(errors="backslashreplace")


def _say(message: str) -> None:
    line = " ".join(printable(message).split())
    if len(line) > _LONGEST_LINE:  # it names something very long; what to do stands at the end
        half = _LONGEST_LINE // 2
        line = f"{line[:half]} ... {line[-half:]}"
    with contextlib.suppress(OSError):  # nobody is there to be told
        click.echo(f"kintune: {line}", err=True)


def _let_go(stream: TextIO | None) -> None:
    """Discard what a broken stream has not taken, so that the interpreter does not write it again at its end."""
    if stream is None:
        return
    try:
        stream.flush()
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            stream.flush()
