"""Where the command line enters: runs a command, and turns every error into one line and an exit code."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from enum import IntEnum

import click

from kintune.cli.root import root
from kintune.errors import InputError, KintuneError, StorageError

__all__ = ["ExitCode", "main"]

_LEFT_BY_BRACES = re.compile(r"unexpected extra arguments? \(.*=(\d+x)*\d+")
"""What is said of `--shape ids=1x{32,64}` where the shell has made two words of the text."""


class ExitCode(IntEnum):
    """What the shell is told."""

    OK = 0
    FAILED = 1
    WRONG_INPUT = 2
    INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `kintune` with `arguments` (those of the process by default) and return its exit code.

    No error leaves this function, and none is shown as a stack trace unless the environment sets `KINTUNE_DEBUG`.
    """
    try:
        code = root.main(
            args=None if arguments is None else list(arguments), prog_name="kintune", standalone_mode=False
        )
        sys.stdout.flush()
        return code if isinstance(code, int) else ExitCode.OK
    except BrokenPipeError:  # the reader of our output has left, as `kintune models | head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.FAILED
    except (KeyboardInterrupt, click.Abort):
        _say("interrupted")
        return ExitCode.INTERRUPTED
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
    _say(f"internal error: {type(error).__name__}: {error}; KINTUNE_DEBUG=1 shows where; please report it")
    return ExitCode.FAILED


def _say(message: str) -> None:
    click.echo(f"kintune: {' '.join(message.split())}", err=True)
