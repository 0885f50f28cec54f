"""What the commands that lend this machine to a service have in common."""

from __future__ import annotations

import asyncio
import os
import platform
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import click

from kintune.errors import InputError
from kintune.workers.fleet.agent import Agent
from kintune.workers.fleet.file_transfer import sweep
from kintune.workers.fleet.messages import Join
from kintune.workers.fleet.sockets import PATH, call

__all__ = ["attend", "door_of", "joining_options", "token_of"]

TOKEN_VARIABLE = "KINTUNE_AGENT_TOKEN"
_SCHEMES = {"ws": "ws", "wss": "wss", "http": "ws", "https": "wss"}

Command = TypeVar("Command", bound=Callable[..., Any])


def joining_options(command: Command) -> Command:
    """`--service`, `--token-file` and `--name`."""
    command = click.option(
        "--service",
        required=True,
        metavar="ADDRESS",
        help="Where the service lets machines in, HOST:PORT; wss://HOST:PORT behind TLS.",
    )(command)
    command = click.option(
        "--token-file",
        metavar="FILE",
        help=f"A file with this machine's token.  [default: ${TOKEN_VARIABLE}]",
    )(command)
    return click.option(
        "--name", metavar="NAME", default=platform.node, help="What this machine is called there.  [default: its own]"
    )(command)


def door_of(service: str) -> str:
    """The URL at which agents come in.  Raises InputError for what is no address."""
    try:
        parts = urlsplit(service if "://" in service else f"ws://{service}")
        fine = parts.scheme in _SCHEMES and bool(parts.hostname) and parts.path in ("", "/", PATH)
        fine = fine and not any(character.isspace() for character in service)
        _ = parts.port
    except ValueError:
        fine = False
    if not fine:
        raise InputError(f"--service {service!r}: is no address; name HOST:PORT, or wss://HOST:PORT")
    return f"{_SCHEMES[parts.scheme]}://{parts.netloc}{PATH}"


def token_of(file: str | None) -> str:
    """This machine's token.  Raises InputError where there is none."""
    if file is None:
        text = os.environ.get(TOKEN_VARIABLE, "")
        source = f"${TOKEN_VARIABLE}"
    else:
        source = f"--token-file {file}"
        try:
            text = Path(file).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{source}: cannot be read ({getattr(error, 'strerror', None) or error})") from error
    token = text.strip()
    if not token or len(token.split()) > 1:
        raise InputError(
            f"{source}: holds no token; make one on the service's machine with: "
            "kintune service add-token --user NAME --scope machine"
        )
    return token


def attend(service: str, token_file: str | None, join: Callable[[], Join]) -> None:
    """Work for a service until Ctrl-C; `join` finds out what this machine offers, once the rest is known to be fine.

    Raises InputError when the service does not want this machine.
    """
    url, token = door_of(service), token_of(token_file)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # nothing is left behind then, either
    sweep()
    agent = Agent(join(), note)
    asyncio.run(agent.serve(lambda: call(url, token)))


def note(line: str) -> None:
    """Tell the person at the terminal."""
    click.echo(f"kintune: {line}", err=True)
