"""The `--json` option, and the documents that it writes."""

from __future__ import annotations

import textwrap
from pathlib import Path

import click
import msgspec

from kintune.cli.widths import prose_width
from kintune.files import check_writable, write_whole
from kintune.terminal.table import printable

__all__ = ["JsonTarget", "echo", "json_option", "write_document"]

_COMMANDS = ("Next: ", "Build and run ")

JsonTarget = str
"""The value of `--json`: an absolute path, `-` for standard output, or "" when it was not given."""


def _check(_context: click.Context, _option: click.Parameter, value: str) -> JsonTarget:
    return value if value in ("", "-") else str(check_writable(value, "--json", stream=True))


json_option = click.option(
    "--json",
    "json_target",
    metavar="FILE",
    default="",
    callback=_check,
    help="Write a JSON document with a schema_version to FILE; '-' is standard output.",
)


def write_document(target: JsonTarget, document: msgspec.Struct) -> None:
    """Write `document`, which has a `schema_version`, where `--json` said; nowhere when it was not given."""
    if not target:
        return
    text = msgspec.json.format(msgspec.json.encode(document).decode(), indent=2) + "\n"
    if target == "-":
        click.echo(text.encode(), nl=False)
    else:
        write_whole(Path(target), text.encode())


def echo(line: str, target: JsonTarget = "") -> None:
    """Print a line of text; it goes to standard error if `--json -` uses standard output.

    On a terminal, a line of prose that is too long for it goes on in the next one; a command to be copied does not.
    Names may come from others: blanks stand in place of their control characters.
    """
    line = printable(line)
    width = None if target == "-" else prose_width()
    if width is None or len(line) <= width or line.startswith(_COMMANDS):
        click.echo(line, err=target == "-")
        return
    indent = line[: len(line) - len(line.lstrip())]
    wrapped = textwrap.wrap(
        line, width, subsequent_indent=f"{indent}  ", break_long_words=False, break_on_hyphens=False
    )
    click.echo("\n".join(wrapped))
