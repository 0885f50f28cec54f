"""The `--json` option, and the documents that it writes."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from kintune.files import check_writable, write_whole

__all__ = ["JsonTarget", "echo", "json_option", "write_document"]

JsonTarget = str
"""The value of `--json`: an absolute path, `-` for standard output, or "" when it was not given."""


def _check(_context: click.Context, _option: click.Parameter, value: str) -> JsonTarget:
    return value if value in ("", "-") else str(check_writable(value, "--json"))


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
        click.echo(text, nl=False)
    else:
        write_whole(Path(target), text.encode())


def echo(line: str, target: JsonTarget = "") -> None:
    """Print a line for people; it goes to standard error when `--json -` has taken standard output."""
    click.echo(line, err=target == "-")
